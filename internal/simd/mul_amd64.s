#include "textflag.h"
#include "rows_amd64.h"

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

// func scattered4(dst *[quad]float32, a, b, c, d, x *float32, cols int)
//
// The loop of dense4 for one token, whose rows lie anywhere.
TEXT ·scattered4(SB), NOSPLIT, $0-56
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), R8
	MOVQ c+24(FP), R9
	MOVQ d+32(FP), R10
	MOVQ x+40(FP), R11
	MOVQ dst+0(FP), DI
	CLEAR4(Y0, Y1, Y2, Y3)
	XORQ AX, AX
	MOVQ cols+48(FP), CX
	SUBQ $8, CX
	JLT  scatteredTail

scatteredLoop:
	VMOVUPS     (R11)(AX*1), Y12
	VFMADD231PS (SI)(AX*1), Y12, Y0
	VFMADD231PS (R8)(AX*1), Y12, Y1
	VFMADD231PS (R9)(AX*1), Y12, Y2
	VFMADD231PS (R10)(AX*1), Y12, Y3
	ADDQ        $32, AX
	SUBQ        $8, CX
	JGE         scatteredLoop

scatteredTail:
	ADDQ $8, CX
	JZ   scatteredSum
	LOADMASK
	TAIL(R11, Y0, Y1, Y2, Y3)

scatteredSum:
	SUM4(Y0, Y1, Y2, Y3, X0)
	VMOVUPS X0, (DI)
	VZEROUPPER
	RET
