#include "textflag.h"

// exp: the argument is cut to what float32 can hold, split into n·ln 2 + r, and
// exp(r) is a polynomial of degree seven. Largest relative error about 2⁻²³.
DATA ·expConst+0(SB)/4, $0xc2aeac50  // -87.336548: exp of it is the smallest normal
DATA ·expConst+4(SB)/4, $0x42b0c0a5  // 88.376259
DATA ·expConst+8(SB)/4, $0x3f318000  // ln 2, high part
DATA ·expConst+12(SB)/4, $0xb95e8083 // ln 2, low part
DATA ·expConst+16(SB)/4, $0x39506967 // 1.9875691500e-4
DATA ·expConst+20(SB)/4, $0x3ab743ce // 1.3981999507e-3
DATA ·expConst+24(SB)/4, $0x3c088908 // 8.3334519073e-3
DATA ·expConst+28(SB)/4, $0x3d2aa9c1 // 4.1665795894e-2
DATA ·expConst+32(SB)/4, $0x3e2aaaaa // 1.6666665459e-1
DATA ·expConst+36(SB)/4, $0x3f000000 // 0.5
DATA ·expConst+40(SB)/4, $0x3f800000 // 1
GLOBL ·expConst(SB), RODATA|NOPTR, $44

DATA ·log2e+0(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA ·log2e+8(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA ·log2e+16(SB)/8, $0x3fb8aa3b3fb8aa3b
DATA ·log2e+24(SB)/8, $0x3fb8aa3b3fb8aa3b
GLOBL ·log2e(SB), RODATA|NOPTR, $32

#define EXPCONSTANTS \
	LEAQ         ·expConst(SB), AX \
	VBROADCASTSS (AX), Y3 \
	VBROADCASTSS 4(AX), Y4 \
	VBROADCASTSS 8(AX), Y6 \
	VBROADCASTSS 12(AX), Y7 \
	VBROADCASTSS 16(AX), Y8 \
	VBROADCASTSS 20(AX), Y9 \
	VBROADCASTSS 24(AX), Y10 \
	VBROADCASTSS 28(AX), Y11 \
	VBROADCASTSS 32(AX), Y12 \
	VBROADCASTSS 36(AX), Y13 \
	VBROADCASTSS 40(AX), Y14

// EXP replaces Y0 by its exponential; clobbers Y1, Y2. The order of operands
// of VMAXPS and VMINPS lets a NaN through.
#define EXP \
	VMAXPS       Y0, Y3, Y0 \
	VMINPS       Y0, Y4, Y0 \
	VMULPS       ·log2e(SB), Y0, Y1 \
	VROUNDPS     $0, Y1, Y1 \
	VFNMADD231PS Y6, Y1, Y0 \
	VFNMADD231PS Y7, Y1, Y0 \
	VMOVAPS      Y8, Y2 \
	VFMADD213PS  Y9, Y0, Y2 \
	VFMADD213PS  Y10, Y0, Y2 \
	VFMADD213PS  Y11, Y0, Y2 \
	VFMADD213PS  Y12, Y0, Y2 \
	VFMADD213PS  Y13, Y0, Y2 \
	VMULPS       Y0, Y2, Y2 \
	VFMADD213PS  Y0, Y0, Y2 \
	VADDPS       Y14, Y2, Y2 \
	VCVTPS2DQ    Y1, Y1 \
	VPSLLD       $23, Y1, Y1 \
	VPADDD       Y14, Y1, Y1 \
	VMULPS       Y1, Y2, Y0

// MASK loads the mask for the CX floats that remain into M; clobbers DX.
#define MASK(M) \
	LEAQ    ·tailMask+32(SB), DX \
	LEAQ    (CX*4), BX \
	SUBQ    BX, DX \
	VMOVUPS (DX), M

// func expSum(s *float32, n int, shift float32) float32
TEXT ·expSum(SB), NOSPLIT, $0-28
	MOVQ         s+0(FP), DI
	MOVQ         n+8(FP), CX
	EXPCONSTANTS
	VBROADCASTSS shift+16(FP), Y15
	VXORPS       Y5, Y5, Y5
	SUBQ         $8, CX
	JLT          expTail

expLoop:
	VMOVUPS (DI), Y0
	VSUBPS  Y15, Y0, Y0
	EXP
	VADDPS  Y0, Y5, Y5
	VMOVUPS Y0, (DI)
	ADDQ    $32, DI
	SUBQ    $8, CX
	JGE     expLoop

expTail:
	ADDQ       $8, CX
	JZ         expDone
	MASK(Y1)
	VMASKMOVPS (DI), Y1, Y0
	VSUBPS     Y15, Y0, Y0
	EXP
	VMOVUPS    (DX), Y1
	VMASKMOVPS Y0, Y1, (DI)
	VANDPS     Y1, Y0, Y0
	VADDPS     Y0, Y5, Y5

expDone:
	VHADDPS      Y5, Y5, Y5
	VHADDPS      Y5, Y5, Y5
	VEXTRACTF128 $1, Y5, X0
	VADDPS       X0, X5, X5
	VMOVSS       X5, ret+24(FP)
	VZEROUPPER
	RET

// func maximum(s *float32, n int) float32
TEXT ·maximum(SB), NOSPLIT, $0-20
	MOVQ         s+0(FP), DI
	MOVQ         n+8(FP), CX
	VBROADCASTSS (DI), Y0
	SUBQ         $8, CX
	JLT          maximumRest

maximumLoop:
	VMAXPS (DI), Y0, Y0
	ADDQ   $32, DI
	SUBQ   $8, CX
	JGE    maximumLoop

maximumRest:
	ADDQ         $8, CX
	VEXTRACTF128 $1, Y0, X1
	VMAXPS       X1, X0, X0
	VPERMILPS    $0x4e, X0, X1
	VMAXPS       X1, X0, X0
	VPERMILPS    $0xb1, X0, X1
	VMAXPS       X1, X0, X0

maximumRestLoop:
	SUBQ   $1, CX
	JLT    maximumDone
	VMAXSS (DI), X0, X0
	ADDQ   $4, DI
	JMP    maximumRestLoop

maximumDone:
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// func siluMul(gate, up *float32, n int)
TEXT ·siluMul(SB), NOSPLIT, $0-24
	MOVQ   gate+0(FP), DI
	MOVQ   up+8(FP), SI
	MOVQ   n+16(FP), CX
	EXPCONSTANTS
	VXORPS Y5, Y5, Y5
	SUBQ   $8, CX
	JLT    siluTail

siluLoop:
	VSUBPS  (DI), Y5, Y0
	EXP
	VADDPS  Y14, Y0, Y0
	VMOVUPS (DI), Y1
	VDIVPS  Y0, Y1, Y0
	VMULPS  (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, DI
	ADDQ    $32, SI
	SUBQ    $8, CX
	JGE     siluLoop

siluTail:
	ADDQ       $8, CX
	JZ         siluDone
	MASK(Y15)
	VMASKMOVPS (DI), Y15, Y0
	VSUBPS     Y0, Y5, Y0
	EXP
	VADDPS     Y14, Y0, Y0
	VMASKMOVPS (DI), Y15, Y1
	VDIVPS     Y0, Y1, Y0
	VMASKMOVPS (SI), Y15, Y1
	VMULPS     Y1, Y0, Y0
	VMASKMOVPS Y0, Y15, (DI)

siluDone:
	VZEROUPPER
	RET

// func addWeighted(dst, rows, p *float32, n, d int)
// Columns are taken 64, then 8, then the rest at a time, and all rows added to
// them in registers.
TEXT ·addWeighted(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ rows+8(FP), SI
	MOVQ d+32(FP), CX
	LEAQ (CX*4), R8

wide:
	CMPQ    CX, $64
	JLT     narrow
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMOVUPS 64(DI), Y2
	VMOVUPS 96(DI), Y3
	VMOVUPS 128(DI), Y4
	VMOVUPS 160(DI), Y5
	VMOVUPS 192(DI), Y6
	VMOVUPS 224(DI), Y7
	MOVQ    SI, R9
	MOVQ    p+16(FP), R10
	MOVQ    n+24(FP), R11

wideLoop:
	VBROADCASTSS (R10), Y8
	VFMADD231PS  (R9), Y8, Y0
	VFMADD231PS  32(R9), Y8, Y1
	VFMADD231PS  64(R9), Y8, Y2
	VFMADD231PS  96(R9), Y8, Y3
	VFMADD231PS  128(R9), Y8, Y4
	VFMADD231PS  160(R9), Y8, Y5
	VFMADD231PS  192(R9), Y8, Y6
	VFMADD231PS  224(R9), Y8, Y7
	ADDQ         R8, R9
	ADDQ         $4, R10
	DECQ         R11
	JNZ          wideLoop
	VMOVUPS      Y0, (DI)
	VMOVUPS      Y1, 32(DI)
	VMOVUPS      Y2, 64(DI)
	VMOVUPS      Y3, 96(DI)
	VMOVUPS      Y4, 128(DI)
	VMOVUPS      Y5, 160(DI)
	VMOVUPS      Y6, 192(DI)
	VMOVUPS      Y7, 224(DI)
	ADDQ         $256, DI
	ADDQ         $256, SI
	SUBQ         $64, CX
	JMP          wide

narrow:
	CMPQ    CX, $8
	JLT     rest
	VMOVUPS (DI), Y0
	MOVQ    SI, R9
	MOVQ    p+16(FP), R10
	MOVQ    n+24(FP), R11

narrowLoop:
	VBROADCASTSS (R10), Y8
	VFMADD231PS  (R9), Y8, Y0
	ADDQ         R8, R9
	ADDQ         $4, R10
	DECQ         R11
	JNZ          narrowLoop
	VMOVUPS      Y0, (DI)
	ADDQ         $32, DI
	ADDQ         $32, SI
	SUBQ         $8, CX
	JMP          narrow

rest:
	TESTQ      CX, CX
	JZ         weightedDone
	MASK(Y15)
	VMASKMOVPS (DI), Y15, Y0
	MOVQ       p+16(FP), R10
	MOVQ       n+24(FP), R11

restLoop:
	VBROADCASTSS (R10), Y8
	VMASKMOVPS   (SI), Y15, Y1
	VFMADD231PS  Y1, Y8, Y0
	ADDQ         R8, SI
	ADDQ         $4, R10
	DECQ         R11
	JNZ          restLoop
	VMASKMOVPS   Y0, Y15, (DI)

weightedDone:
	VZEROUPPER
	RET

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	PAUSE
	RET
