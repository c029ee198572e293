#include "textflag.h"

// The dense kernel for eight rows at a time, in a decoded tile that holds eight
// numbers of each row in turn: [cols/8][8 rows][8]. A 512-bit register takes
// two rows, each in eight lanes of its own, against a token's eight numbers in
// both halves. So every sum is that of the 256-bit kernels, to the last bit.
//
// DX runs along the tile, R11 along the tokens, which are R8 bytes apart (R9 and
// R10: three and five times that). Token t accumulates in Z(4t) to Z(4t+3).

#define CLEAR8(A, B, C, D) \
	VPXORQ A, A, A \
	VPXORQ B, B, B \
	VPXORQ C, C, C \
	VPXORQ D, D, D

#define LOADROWS \
	VMOVUPS (DX), Z24 \
	VMOVUPS 64(DX), Z25 \
	VMOVUPS 128(DX), Z26 \
	VMOVUPS 192(DX), Z27

// ADDTOKEN adds the products with the token in X.
#define ADDTOKEN(X, A, B, C, D) \
	VFMADD231PS Z24, X, A \
	VFMADD231PS Z25, X, B \
	VFMADD231PS Z26, X, C \
	VFMADD231PS Z27, X, D

// SUM2 writes the sums of two registers, four rows, to AT; clobbers Y0 to Y3.
#define SUM2(A, B, AT) \
	VEXTRACTF64X4 $1, A, Y1 \
	VEXTRACTF64X4 $0, A, Y0 \
	VEXTRACTF64X4 $1, B, Y3 \
	VEXTRACTF64X4 $0, B, Y2 \
	VHADDPS       Y1, Y0, Y0 \
	VHADDPS       Y3, Y2, Y2 \
	VHADDPS       Y2, Y0, Y0 \
	VEXTRACTF128  $1, Y0, X1 \
	VADDPS        X1, X0, X0 \
	VMOVUPS       X0, AT

// SAVEFIRST makes room for SUM2: the first token's sums go to Z28 to Z31.
#define SAVEFIRST \
	VMOVUPS Z0, Z28 \
	VMOVUPS Z1, Z29 \
	VMOVUPS Z2, Z30 \
	VMOVUPS Z3, Z31

// STORE8 writes the eight sums of a token and goes on to the next.
#define STORE8(A, B, C, D) \
	SUM2(A, B, (DI)) \
	SUM2(C, D, 16(DI)) \
	ADDQ BX, DI

// func dense8(dst *float32, stride int, w *float32, x *float32, xStride, tokens, cols int)
TEXT ·dense8(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ stride+8(FP), BX
	SHLQ $2, BX
	MOVQ w+16(FP), SI
	MOVQ x+24(FP), R11
	MOVQ xStride+32(FP), R8
	SHLQ $2, R8
	LEAQ (R8)(R8*2), R9
	LEAQ (R8)(R8*4), R10
	MOVQ tokens+40(FP), AX
	MOVQ cols+48(FP), R13
	SHLQ $2, R13

six:
	CMPQ AX, $6
	JLT  three
	MOVQ SI, DX
	MOVQ R13, CX
	CLEAR8(Z0, Z1, Z2, Z3)
	CLEAR8(Z4, Z5, Z6, Z7)
	CLEAR8(Z8, Z9, Z10, Z11)
	CLEAR8(Z12, Z13, Z14, Z15)
	CLEAR8(Z16, Z17, Z18, Z19)
	CLEAR8(Z20, Z21, Z22, Z23)

sixLoop:
	LOADROWS
	VBROADCASTF64X4 (R11), Z28
	ADDTOKEN(Z28, Z0, Z1, Z2, Z3)
	VBROADCASTF64X4 (R11)(R8*1), Z29
	ADDTOKEN(Z29, Z4, Z5, Z6, Z7)
	VBROADCASTF64X4 (R11)(R8*2), Z30
	ADDTOKEN(Z30, Z8, Z9, Z10, Z11)
	VBROADCASTF64X4 (R11)(R9*1), Z31
	ADDTOKEN(Z31, Z12, Z13, Z14, Z15)
	VBROADCASTF64X4 (R11)(R8*4), Z28
	ADDTOKEN(Z28, Z16, Z17, Z18, Z19)
	VBROADCASTF64X4 (R11)(R10*1), Z29
	ADDTOKEN(Z29, Z20, Z21, Z22, Z23)
	ADDQ $256, DX
	ADDQ $32, R11
	SUBQ $32, CX
	JNZ  sixLoop
	SAVEFIRST
	STORE8(Z28, Z29, Z30, Z31)
	STORE8(Z4, Z5, Z6, Z7)
	STORE8(Z8, Z9, Z10, Z11)
	STORE8(Z12, Z13, Z14, Z15)
	STORE8(Z16, Z17, Z18, Z19)
	STORE8(Z20, Z21, Z22, Z23)
	SUBQ R13, R11
	LEAQ (R11)(R9*2), R11
	SUBQ $6, AX
	JMP  six

three:
	CMPQ AX, $3
	JLT  two
	MOVQ SI, DX
	MOVQ R13, CX
	CLEAR8(Z0, Z1, Z2, Z3)
	CLEAR8(Z4, Z5, Z6, Z7)
	CLEAR8(Z8, Z9, Z10, Z11)

threeLoop:
	LOADROWS
	VBROADCASTF64X4 (R11), Z28
	ADDTOKEN(Z28, Z0, Z1, Z2, Z3)
	VBROADCASTF64X4 (R11)(R8*1), Z29
	ADDTOKEN(Z29, Z4, Z5, Z6, Z7)
	VBROADCASTF64X4 (R11)(R8*2), Z30
	ADDTOKEN(Z30, Z8, Z9, Z10, Z11)
	ADDQ $256, DX
	ADDQ $32, R11
	SUBQ $32, CX
	JNZ  threeLoop
	SAVEFIRST
	STORE8(Z28, Z29, Z30, Z31)
	STORE8(Z4, Z5, Z6, Z7)
	STORE8(Z8, Z9, Z10, Z11)
	SUBQ R13, R11
	ADDQ R9, R11
	SUBQ $3, AX
	JMP  three

two:
	CMPQ AX, $2
	JLT  one
	MOVQ SI, DX
	MOVQ R13, CX
	CLEAR8(Z0, Z1, Z2, Z3)
	CLEAR8(Z4, Z5, Z6, Z7)

twoLoop:
	LOADROWS
	VBROADCASTF64X4 (R11), Z28
	ADDTOKEN(Z28, Z0, Z1, Z2, Z3)
	VBROADCASTF64X4 (R11)(R8*1), Z29
	ADDTOKEN(Z29, Z4, Z5, Z6, Z7)
	ADDQ $256, DX
	ADDQ $32, R11
	SUBQ $32, CX
	JNZ  twoLoop
	SAVEFIRST
	STORE8(Z28, Z29, Z30, Z31)
	STORE8(Z4, Z5, Z6, Z7)
	SUBQ R13, R11
	LEAQ (R11)(R8*2), R11
	SUBQ $2, AX
	JMP  two

one:
	CMPQ AX, $1
	JLT  done
	MOVQ SI, DX
	MOVQ R13, CX
	CLEAR8(Z0, Z1, Z2, Z3)

oneLoop:
	LOADROWS
	VBROADCASTF64X4 (R11), Z28
	ADDTOKEN(Z28, Z0, Z1, Z2, Z3)
	ADDQ $256, DX
	ADDQ $32, R11
	SUBQ $32, CX
	JNZ  oneLoop
	SAVEFIRST
	STORE8(Z28, Z29, Z30, Z31)
	SUBQ R13, R11
	ADDQ R8, R11
	SUBQ $1, AX
	JMP  one

done:
	VZEROUPPER
	RET
