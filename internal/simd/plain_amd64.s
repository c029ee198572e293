#include "textflag.h"
#include "rows_amd64.h"

// Formats without blocks, and FP8.

// func spreadF32(dst *float32, step int, src *byte, n int)
TEXT ·spreadF32(SB), NOSPLIT, $0-32
	DECODEARGS

loop:
	VMOVUPS (SI), Y9
	VMOVUPS Y9, (DI)
	ADDQ    $32, SI
	ADDQ    BX, DI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

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

// func dot4F16(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4F16(SB), NOSPLIT, $0-40
	DOT4WORDS(F16EIGHT)

// func spreadF16(dst *float32, step int, src *byte, n int)
TEXT ·spreadF16(SB), NOSPLIT, $0-32
	DECODEARGS

loop:
	VCVTPH2PS (SI), Y9
	VMOVUPS   Y9, (DI)
	ADDQ      $16, SI
	ADDQ      BX, DI
	SUBQ      $8, CX
	JNZ       loop
	VZEROUPPER
	RET

#define BF16EIGHT \
	VMOVUPS     (DX)(AX*2), Y4 \
	VPMOVZXWD   (SI)(AX*1), Y8 \
	VPMOVZXWD   (R8)(AX*1), Y9 \
	VPMOVZXWD   (R9)(AX*1), Y10 \
	VPMOVZXWD   (R10)(AX*1), Y11 \
	VPSLLD      $16, Y8, Y8 \
	VPSLLD      $16, Y9, Y9 \
	VPSLLD      $16, Y10, Y10 \
	VPSLLD      $16, Y11, Y11 \
	VFMADD231PS Y4, Y8, Y0 \
	VFMADD231PS Y4, Y9, Y1 \
	VFMADD231PS Y4, Y10, Y2 \
	VFMADD231PS Y4, Y11, Y3 \
	ADDQ        $16, AX

// func dot4BF16(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4BF16(SB), NOSPLIT, $0-40
	DOT4WORDS(BF16EIGHT)

// func spreadBF16(dst *float32, step int, src *byte, n int)
TEXT ·spreadBF16(SB), NOSPLIT, $0-32
	DECODEARGS

loop:
	VPMOVZXWD (SI), Y9
	VPSLLD    $16, Y9, Y9
	VMOVUPS   Y9, (DI)
	ADDQ      $16, SI
	ADDQ      BX, DI
	SUBQ      $8, CX
	JNZ       loop
	VZEROUPPER
	RET

// E4M3 becomes binary16 with the same exponent bits, so 2⁻⁸ times the number:
// the sign-extended byte moved up by seven, without the second copy of the sign
// in bit 14. Where all seven bits are set it becomes NaN.
//
// FP8CONSTANTS are the seven bits, all but bit 14, and 2⁸.
#define FP8CONSTANTS \
	FILL(0x3f803f80, X5, Y5) \
	FILL(0xbfffbfff, X6, Y6) \
	FILL(0x43800000, X7, Y7)

// FP8EIGHT converts the eight numbers at 4(P)(AX) to Y, times SCALE; clobbers X8.
#define FP8EIGHT(P, X, Y, SCALE) \
	VPMOVSXBW 4(P)(AX*1), X \
	VPSLLW    $7, X, X \
	VPAND     X5, X, X8 \
	VPCMPEQW  X5, X8, X8 \
	VPAND     X6, X, X \
	VPOR      X8, X, X \
	VCVTPH2PS X, Y \
	VMULPS    Y7, Y, Y \
	VMULPS    SCALE, Y, Y

// FP8NEXT sets R12 to the number of weights in the block, of the CX left.
#define FP8NEXT \
	MOVQ    $128, R12 \
	CMPQ    CX, R12 \
	CMOVQLT CX, R12 \
	XORQ    AX, AX

// func dot4FP8(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4FP8(SB), NOSPLIT, $0-40
	DOT4ARGS
	FP8CONSTANTS

block:
	FP8NEXT
	PREFETCH4(0)
	PREFETCH4(64)
	VBROADCASTSS (SI), Y12
	VBROADCASTSS (R8), Y13
	VBROADCASTSS (R9), Y14
	VBROADCASTSS (R10), Y15

eight:
	VMOVUPS     (DX)(AX*4), Y4
	FP8EIGHT(SI, X9, Y9, Y12)
	VFMADD231PS Y4, Y9, Y0
	FP8EIGHT(R8, X10, Y10, Y13)
	VFMADD231PS Y4, Y10, Y1
	FP8EIGHT(R9, X9, Y9, Y14)
	VFMADD231PS Y4, Y9, Y2
	FP8EIGHT(R10, X10, Y10, Y15)
	VFMADD231PS Y4, Y10, Y3
	ADDQ        $8, AX
	CMPQ        AX, R12
	JLT         eight
	LEAQ        (DX)(AX*4), DX
	LEAQ        4(SI)(AX*1), SI
	LEAQ        4(R8)(AX*1), R8
	LEAQ        4(R9)(AX*1), R9
	LEAQ        4(R10)(AX*1), R10
	SUBQ        AX, CX
	JNZ         block
	STORE4
	RET

// func spreadFP8(dst *float32, step int, src *byte, n int)
TEXT ·spreadFP8(SB), NOSPLIT, $0-32
	DECODEARGS
	FP8CONSTANTS

block:
	FP8NEXT
	VBROADCASTSS (SI), Y12

eight:
	FP8EIGHT(SI, X9, Y9, Y12)
	VMOVUPS Y9, (DI)
	ADDQ    BX, DI
	ADDQ    $8, AX
	CMPQ    AX, R12
	JLT     eight
	LEAQ    4(SI)(AX*1), SI
	SUBQ    AX, CX
	JNZ     block
	VZEROUPPER
	RET
