#include "textflag.h"

// Masks for the last 1 to 7 floats of a row: eight lanes on, eight off, read
// at 4 × (8 - remaining).
DATA ·tailMask+0(SB)/8, $0xffffffffffffffff
DATA ·tailMask+8(SB)/8, $0xffffffffffffffff
DATA ·tailMask+16(SB)/8, $0xffffffffffffffff
DATA ·tailMask+24(SB)/8, $0xffffffffffffffff
DATA ·tailMask+32(SB)/8, $0
DATA ·tailMask+40(SB)/8, $0
DATA ·tailMask+48(SB)/8, $0
DATA ·tailMask+56(SB)/8, $0
GLOBL ·tailMask(SB), RODATA|NOPTR, $64

// The dense kernel. SI, R8, R9, R10 are the four rows, R11, R12, R13 the
// tokens, AX the offset along K in bytes. Token t accumulates in four
// registers, one a row: Y0-Y3, Y4-Y7, Y8-Y11.

#define CLEAR4(A, B, C, D) \
	VXORPS A, A, A \
	VXORPS B, B, B \
	VXORPS C, C, C \
	VXORPS D, D, D

// TAIL adds the masked (Y15) rest of the four rows times token X.
#define TAIL(X, A, B, C, D) \
	VMASKMOVPS  (X)(AX*1), Y15, Y12 \
	VMASKMOVPS  (SI)(AX*1), Y15, Y13 \
	VFMADD231PS Y12, Y13, A \
	VMASKMOVPS  (R8)(AX*1), Y15, Y13 \
	VFMADD231PS Y12, Y13, B \
	VMASKMOVPS  (R9)(AX*1), Y15, Y13 \
	VFMADD231PS Y12, Y13, C \
	VMASKMOVPS  (R10)(AX*1), Y15, Y13 \
	VFMADD231PS Y12, Y13, D

// LOADMASK sets Y15 for the CX floats that remain; clobbers DX, CX.
#define LOADMASK \
	LEAQ    ·tailMask+32(SB), DX \
	SHLQ    $2, CX \
	SUBQ    CX, DX \
	VMOVUPS (DX), Y15

// SUM4 reduces four accumulators to four floats in LOW, the low half of A.
// Every lane sum is ((0+1)+(2+3)) + ((4+5)+(6+7)).
#define SUM4(A, B, C, D, LOW) \
	VHADDPS      B, A, A \
	VHADDPS      D, C, C \
	VHADDPS      C, A, A \
	VEXTRACTF128 $1, A, X15 \
	VADDPS       X15, LOW, LOW

// func dense4(dst *float32, stride int, w unsafe.Pointer, wStride int, x *float32, xStride, tokens, cols int)
TEXT ·dense4(SB), NOSPLIT, $0-64
	MOVQ w+16(FP), SI
	MOVQ wStride+24(FP), AX
	SHLQ $2, AX
	LEAQ (SI)(AX*1), R8
	LEAQ (R8)(AX*1), R9
	LEAQ (R9)(AX*1), R10
	MOVQ x+32(FP), R11
	MOVQ dst+0(FP), DI
	MOVQ tokens+48(FP), BX

three:
	CMPQ BX, $3
	JLT  two
	MOVQ xStride+40(FP), CX
	SHLQ $2, CX
	LEAQ (R11)(CX*1), R12
	LEAQ (R12)(CX*1), R13
	CLEAR4(Y0, Y1, Y2, Y3)
	CLEAR4(Y4, Y5, Y6, Y7)
	CLEAR4(Y8, Y9, Y10, Y11)
	XORQ AX, AX
	MOVQ cols+56(FP), CX
	SUBQ $8, CX
	JLT  threeTail

threeLoop:
	VMOVUPS     (R11)(AX*1), Y12
	VMOVUPS     (R12)(AX*1), Y13
	VMOVUPS     (R13)(AX*1), Y14
	VMOVUPS     (SI)(AX*1), Y15
	VFMADD231PS Y12, Y15, Y0
	VFMADD231PS Y13, Y15, Y4
	VFMADD231PS Y14, Y15, Y8
	VMOVUPS     (R8)(AX*1), Y15
	VFMADD231PS Y12, Y15, Y1
	VFMADD231PS Y13, Y15, Y5
	VFMADD231PS Y14, Y15, Y9
	VMOVUPS     (R9)(AX*1), Y15
	VFMADD231PS Y12, Y15, Y2
	VFMADD231PS Y13, Y15, Y6
	VFMADD231PS Y14, Y15, Y10
	VMOVUPS     (R10)(AX*1), Y15
	VFMADD231PS Y12, Y15, Y3
	VFMADD231PS Y13, Y15, Y7
	VFMADD231PS Y14, Y15, Y11
	ADDQ        $32, AX
	SUBQ        $8, CX
	JGE         threeLoop

threeTail:
	ADDQ $8, CX
	JZ   threeSum
	LOADMASK
	TAIL(R11, Y0, Y1, Y2, Y3)
	TAIL(R12, Y4, Y5, Y6, Y7)
	TAIL(R13, Y8, Y9, Y10, Y11)

threeSum:
	SUM4(Y0, Y1, Y2, Y3, X0)
	SUM4(Y4, Y5, Y6, Y7, X4)
	SUM4(Y8, Y9, Y10, Y11, X8)
	MOVQ    stride+8(FP), CX
	VMOVUPS X0, (DI)
	VMOVUPS X4, (DI)(CX*4)
	LEAQ    (DI)(CX*8), DX
	VMOVUPS X8, (DX)
	LEAQ    (DX)(CX*4), DI
	MOVQ    xStride+40(FP), CX
	LEAQ    (R13)(CX*4), R11
	SUBQ    $3, BX
	JMP     three

two:
	CMPQ BX, $2
	JLT  one
	MOVQ xStride+40(FP), CX
	LEAQ (R11)(CX*4), R12
	CLEAR4(Y0, Y1, Y2, Y3)
	CLEAR4(Y4, Y5, Y6, Y7)
	XORQ AX, AX
	MOVQ cols+56(FP), CX
	SUBQ $8, CX
	JLT  twoTail

twoLoop:
	VMOVUPS     (R11)(AX*1), Y12
	VMOVUPS     (R12)(AX*1), Y13
	VMOVUPS     (SI)(AX*1), Y15
	VFMADD231PS Y12, Y15, Y0
	VFMADD231PS Y13, Y15, Y4
	VMOVUPS     (R8)(AX*1), Y14
	VFMADD231PS Y12, Y14, Y1
	VFMADD231PS Y13, Y14, Y5
	VMOVUPS     (R9)(AX*1), Y15
	VFMADD231PS Y12, Y15, Y2
	VFMADD231PS Y13, Y15, Y6
	VMOVUPS     (R10)(AX*1), Y14
	VFMADD231PS Y12, Y14, Y3
	VFMADD231PS Y13, Y14, Y7
	ADDQ        $32, AX
	SUBQ        $8, CX
	JGE         twoLoop

twoTail:
	ADDQ $8, CX
	JZ   twoSum
	LOADMASK
	TAIL(R11, Y0, Y1, Y2, Y3)
	TAIL(R12, Y4, Y5, Y6, Y7)

twoSum:
	SUM4(Y0, Y1, Y2, Y3, X0)
	SUM4(Y4, Y5, Y6, Y7, X4)
	MOVQ    stride+8(FP), CX
	VMOVUPS X0, (DI)
	VMOVUPS X4, (DI)(CX*4)
	VZEROUPPER
	RET

one:
	TESTQ BX, BX
	JZ    done
	CLEAR4(Y0, Y1, Y2, Y3)
	XORQ  AX, AX
	MOVQ  cols+56(FP), CX
	SUBQ  $8, CX
	JLT   oneTail

oneLoop:
	VMOVUPS     (R11)(AX*1), Y12
	VFMADD231PS (SI)(AX*1), Y12, Y0
	VFMADD231PS (R8)(AX*1), Y12, Y1
	VFMADD231PS (R9)(AX*1), Y12, Y2
	VFMADD231PS (R10)(AX*1), Y12, Y3
	ADDQ        $32, AX
	SUBQ        $8, CX
	JGE         oneLoop

oneTail:
	ADDQ $8, CX
	JZ   oneSum
	LOADMASK
	TAIL(R11, Y0, Y1, Y2, Y3)

oneSum:
	SUM4(Y0, Y1, Y2, Y3, X0)
	VMOVUPS X0, (DI)

done:
	VZEROUPPER
	RET

// The kernels for one token. SI, R8, R9, R10 are the rows, DX the token, CX
// counts; Y0-Y3 accumulate, Y4-Y7 hold up to 32 activations.

// ROWS4 finds the four rows from SI and the distance AX. R11 is the distance
// to the next four, which the kernels fetch ahead: four streams in
// one page are more than hardware prefetchers follow, and the many instructions
// of a block leave few loads in flight.
#define ROWS4 \
	LEAQ (AX*4), R11 \
	LEAQ (SI)(AX*1), R8 \
	LEAQ (R8)(AX*1), R9 \
	LEAQ (R9)(AX*1), R10 \
	CLEAR4(Y0, Y1, Y2, Y3)

#define STORE4 \
	SUM4(Y0, Y1, Y2, Y3, X0) \
	VMOVUPS X0, (DI) \
	VZEROUPPER

// F16EIGHT adds eight products of each row at offset AX.
#define F16EIGHT \
	VMOVUPS     (DX)(AX*2), Y4 \
	VCVTPH2PS   (SI)(AX*1), Y8 \
	VCVTPH2PS   (R8)(AX*1), Y9 \
	VCVTPH2PS   (R9)(AX*1), Y10 \
	VCVTPH2PS   (R10)(AX*1), Y11 \
	VFMADD231PS Y4, Y8, Y0 \
	VFMADD231PS Y4, Y9, Y1 \
	VFMADD231PS Y4, Y10, Y2 \
	VFMADD231PS Y4, Y11, Y3 \
	ADDQ        $16, AX

// func dot4F16(dst *[quad]float32, w unsafe.Pointer, rowBytes int, x *float32, cols int)
TEXT ·dot4F16(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ rowBytes+16(FP), AX
	MOVQ x+24(FP), DX
	ROWS4
	MOVQ cols+32(FP), CX
	XORQ AX, AX
	SUBQ $32, CX
	JLT  f16Rest

f16Loop:
	PREFETCHT0 (SI)(R11*1)
	PREFETCHT0 (R8)(R11*1)
	PREFETCHT0 (R9)(R11*1)
	PREFETCHT0 (R10)(R11*1)
	ADDQ       $64, R11
	F16EIGHT
	F16EIGHT
	F16EIGHT
	F16EIGHT
	SUBQ       $32, CX
	JGE        f16Loop

f16Rest:
	ADDQ $32, CX

f16RestLoop:
	SUBQ $8, CX
	JLT  f16Done
	F16EIGHT
	JMP  f16RestLoop

f16Done:
	STORE4
	RET

// Q8BLOCK decodes the block at P to Y9-Y12.
#define Q8BLOCK(P) \
	VPBROADCASTW (P), X8 \
	VCVTPH2PS    X8, Y8 \
	VPMOVSXBD    2(P), Y9 \
	VPMOVSXBD    10(P), Y10 \
	VPMOVSXBD    18(P), Y11 \
	VPMOVSXBD    26(P), Y12 \
	VCVTDQ2PS    Y9, Y9 \
	VCVTDQ2PS    Y10, Y10 \
	VCVTDQ2PS    Y11, Y11 \
	VCVTDQ2PS    Y12, Y12 \
	VMULPS       Y8, Y9, Y9 \
	VMULPS       Y8, Y10, Y10 \
	VMULPS       Y8, Y11, Y11 \
	VMULPS       Y8, Y12, Y12 \
	ADDQ         $34, P

// Q4BLOCK decodes the block at P to Y9-Y12; needs Y15 = 15 and Y14 = -8.0 in
// every lane. nibble × scale - 8 × scale is exact in one fused step.
#define Q4BLOCK(P) \
	VPBROADCASTW (P), X8 \
	VCVTPH2PS    X8, Y8 \
	VPMOVZXBD    2(P), Y9 \
	VPMOVZXBD    10(P), Y10 \
	VMULPS       Y14, Y8, Y13 \
	VPSRLD       $4, Y9, Y11 \
	VPSRLD       $4, Y10, Y12 \
	VPAND        Y15, Y9, Y9 \
	VPAND        Y15, Y10, Y10 \
	VCVTDQ2PS    Y9, Y9 \
	VCVTDQ2PS    Y10, Y10 \
	VCVTDQ2PS    Y11, Y11 \
	VCVTDQ2PS    Y12, Y12 \
	VFMADD213PS  Y13, Y8, Y9 \
	VFMADD213PS  Y13, Y8, Y10 \
	VFMADD213PS  Y13, Y8, Y11 \
	VFMADD213PS  Y13, Y8, Y12 \
	ADDQ         $18, P

#define ADDBLOCK(ACC) \
	VFMADD231PS Y4, Y9, ACC \
	VFMADD231PS Y5, Y10, ACC \
	VFMADD231PS Y6, Y11, ACC \
	VFMADD231PS Y7, Y12, ACC

#define LOADX \
	VMOVUPS (DX), Y4 \
	VMOVUPS 32(DX), Y5 \
	VMOVUPS 64(DX), Y6 \
	VMOVUPS 96(DX), Y7 \
	ADDQ    $128, DX

// func dot4Q8(dst *[quad]float32, w unsafe.Pointer, rowBytes int, x *float32, blocks int)
TEXT ·dot4Q8(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ rowBytes+16(FP), AX
	MOVQ x+24(FP), DX
	ROWS4
	MOVQ blocks+32(FP), CX

q8Loop:
	LOADX
	PREFETCHT0 (SI)(R11*1)
	Q8BLOCK(SI)
	ADDBLOCK(Y0)
	PREFETCHT0 (R8)(R11*1)
	Q8BLOCK(R8)
	ADDBLOCK(Y1)
	PREFETCHT0 (R9)(R11*1)
	Q8BLOCK(R9)
	ADDBLOCK(Y2)
	PREFETCHT0 (R10)(R11*1)
	Q8BLOCK(R10)
	ADDBLOCK(Y3)
	DECQ CX
	JNZ  q8Loop
	STORE4
	RET

// Q4CONSTANTS sets Y15 to 15 and Y14 to -8.0 in every lane.
#define Q4CONSTANTS \
	MOVL         $15, AX \
	VMOVD        AX, X15 \
	VPBROADCASTD X15, Y15 \
	MOVL         $0xc1000000, AX \
	VMOVD        AX, X14 \
	VPBROADCASTD X14, Y14

// func dot4Q4(dst *[quad]float32, w unsafe.Pointer, rowBytes int, x *float32, blocks int)
TEXT ·dot4Q4(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ rowBytes+16(FP), AX
	MOVQ x+24(FP), DX
	ROWS4
	Q4CONSTANTS
	MOVQ blocks+32(FP), CX

q4Loop:
	LOADX
	PREFETCHT0 (SI)(R11*1)
	Q4BLOCK(SI)
	ADDBLOCK(Y0)
	PREFETCHT0 (R8)(R11*1)
	Q4BLOCK(R8)
	ADDBLOCK(Y1)
	PREFETCHT0 (R9)(R11*1)
	Q4BLOCK(R9)
	ADDBLOCK(Y2)
	PREFETCHT0 (R10)(R11*1)
	Q4BLOCK(R10)
	ADDBLOCK(Y3)
	DECQ CX
	JNZ  q4Loop
	STORE4
	RET

// STOREBLOCK writes a decoded block, eight numbers every BX bytes; R8 is
// three times BX.
#define STOREBLOCK \
	VMOVUPS Y9, (DI) \
	VMOVUPS Y10, (DI)(BX*1) \
	VMOVUPS Y11, (DI)(BX*2) \
	VMOVUPS Y12, (DI)(R8*1) \
	LEAQ    (DI)(BX*4), DI

// func decodeF16(dst *float32, step int, src *byte, n int)
TEXT ·decodeF16(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ step+8(FP), BX
	SHLQ $2, BX
	LEAQ (BX)(BX*2), R8
	MOVQ src+16(FP), SI
	MOVQ n+24(FP), CX
	SUBQ $32, CX
	JLT  decodeF16Rest

decodeF16Loop:
	VCVTPH2PS (SI), Y9
	VCVTPH2PS 16(SI), Y10
	VCVTPH2PS 32(SI), Y11
	VCVTPH2PS 48(SI), Y12
	ADDQ      $64, SI
	STOREBLOCK
	SUBQ      $32, CX
	JGE       decodeF16Loop

decodeF16Rest:
	ADDQ $32, CX

decodeF16RestLoop:
	SUBQ      $8, CX
	JLT       decodeF16Done
	VCVTPH2PS (SI), Y9
	VMOVUPS   Y9, (DI)
	ADDQ      $16, SI
	ADDQ      BX, DI
	JMP       decodeF16RestLoop

decodeF16Done:
	VZEROUPPER
	RET

// func decodeQ8(dst *float32, step int, src *byte, blocks int)
TEXT ·decodeQ8(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ step+8(FP), BX
	SHLQ $2, BX
	LEAQ (BX)(BX*2), R8
	MOVQ src+16(FP), SI
	MOVQ blocks+24(FP), CX

decodeQ8Loop:
	Q8BLOCK(SI)
	STOREBLOCK
	DECQ CX
	JNZ  decodeQ8Loop
	VZEROUPPER
	RET

// func decodeQ4(dst *float32, step int, src *byte, blocks int)
TEXT ·decodeQ4(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ step+8(FP), BX
	SHLQ $2, BX
	LEAQ (BX)(BX*2), R8
	MOVQ src+16(FP), SI
	MOVQ blocks+24(FP), CX
	Q4CONSTANTS

decodeQ4Loop:
	Q4BLOCK(SI)
	STOREBLOCK
	DECQ CX
	JNZ  decodeQ4Loop
	VZEROUPPER
	RET
