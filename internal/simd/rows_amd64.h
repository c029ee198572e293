// What the kernels that read rows of weights share. A format brings one macro,
// which decodes a few weights to registers; the functions around it are stamped
// from those at the end of this file.

#define CLEAR4(A, B, C, D) \
	VXORPS A, A, A \
	VXORPS B, B, B \
	VXORPS C, C, C \
	VXORPS D, D, D

// SUM4 reduces four accumulators to four floats in LOW, the low half of A.
// Every lane sum is ((0+1)+(2+3)) + ((4+5)+(6+7)).
#define SUM4(A, B, C, D, LOW) \
	VHADDPS      B, A, A \
	VHADDPS      D, C, C \
	VHADDPS      C, A, A \
	VEXTRACTF128 $1, A, X15 \
	VADDPS       X15, LOW, LOW

// In the kernels for one token SI, R8, R9, R10 are the rows, DX the token, CX
// counts; Y0-Y3 accumulate, Y4-Y7 hold up to 32 activations, Y9-Y12 the weights
// of one row.

// DOT4ARGS loads the arguments of a dot4 function and finds the four rows. R11
// is the distance to the next four, which the kernels fetch ahead: four streams
// in one page are more than hardware prefetchers follow, and the many
// instructions of a block leave few loads in flight.
#define DOT4ARGS \
	MOVQ dst+0(FP), DI \
	MOVQ w+8(FP), SI \
	MOVQ rowBytes+16(FP), AX \
	MOVQ x+24(FP), DX \
	MOVQ cols+32(FP), CX \
	LEAQ (AX*4), R11 \
	LEAQ (SI)(AX*1), R8 \
	LEAQ (R8)(AX*1), R9 \
	LEAQ (R9)(AX*1), R10 \
	CLEAR4(Y0, Y1, Y2, Y3)

#define STORE4 \
	SUM4(Y0, Y1, Y2, Y3, X0) \
	VMOVUPS X0, (DI) \
	VZEROUPPER

#define PREFETCH4(OFF) \
	PREFETCHT0 OFF(SI)(R11*1) \
	PREFETCHT0 OFF(R8)(R11*1) \
	PREFETCHT0 OFF(R9)(R11*1) \
	PREFETCHT0 OFF(R10)(R11*1)

#define LOADX \
	VMOVUPS (DX), Y4 \
	VMOVUPS 32(DX), Y5 \
	VMOVUPS 64(DX), Y6 \
	VMOVUPS 96(DX), Y7 \
	ADDQ    $128, DX

// ADD32 adds the products of 32 weights of one row.
#define ADD32(ACC) \
	VFMADD231PS Y4, Y9, ACC \
	VFMADD231PS Y5, Y10, ACC \
	VFMADD231PS Y6, Y11, ACC \
	VFMADD231PS Y7, Y12, ACC

// DECODEARGS loads the arguments of a decode function: eight numbers go to DI
// every BX bytes, R8 is three times BX, SI the row, CX the number of weights.
#define DECODEARGS \
	MOVQ dst+0(FP), DI \
	MOVQ step+8(FP), BX \
	SHLQ $2, BX \
	LEAQ (BX)(BX*2), R8 \
	MOVQ src+16(FP), SI \
	MOVQ n+24(FP), CX

// PUT32 writes 32 weights.
#define PUT32 \
	VMOVUPS Y9, (DI) \
	VMOVUPS Y10, (DI)(BX*1) \
	VMOVUPS Y11, (DI)(BX*2) \
	VMOVUPS Y12, (DI)(R8*1) \
	LEAQ    (DI)(BX*4), DI

// HALF broadcasts the binary16 number at OFF(P) to Y as float32; X is its low
// half.
#define HALF(OFF, P, X, Y) \
	VPBROADCASTW OFF(P), X \
	VCVTPH2PS    X, Y

// FLOATS converts the integers in Y9-Y12.
#define FLOATS \
	VCVTDQ2PS Y9, Y9 \
	VCVTDQ2PS Y10, Y10 \
	VCVTDQ2PS Y11, Y11 \
	VCVTDQ2PS Y12, Y12

// TIMES multiplies them with a scale for each half.
#define TIMES(LOW, HIGH) \
	VMULPS LOW, Y9, Y9 \
	VMULPS LOW, Y10, Y10 \
	VMULPS HIGH, Y11, Y11 \
	VMULPS HIGH, Y12, Y12

// TIMESPLUS multiplies them with Y8 and adds Y13; the product is exact, so that
// the fused step rounds once, as the two steps of the Go code do.
#define TIMESPLUS \
	VFMADD213PS Y13, Y8, Y9 \
	VFMADD213PS Y13, Y8, Y10 \
	VFMADD213PS Y13, Y8, Y11 \
	VFMADD213PS Y13, Y8, Y12

#define TIMESMINUS \
	VFMSUB213PS Y13, Y8, Y9 \
	VFMSUB213PS Y13, Y8, Y10 \
	VFMSUB213PS Y13, Y8, Y11 \
	VFMSUB213PS Y13, Y8, Y12

// WIDEN spreads the 32 bytes in Y12 over Y9-Y12 by MOV, which extends the lower
// eight of a register to 32 bits with zeros or with the sign.
#define WIDEN(MOV) \
	MOV          X12, Y9 \
	VPSRLDQ      $8, X12, X10 \
	MOV          X10, Y10 \
	VEXTRACTI128 $1, Y12, X12 \
	MOV          X12, Y11 \
	VPSRLDQ      $8, X12, X12 \
	MOV          X12, Y12

// FILL sets every 32 bits of Y to VALUE; clobbers AX.
#define FILL(VALUE, X, Y) \
	MOVL         $VALUE, AX \
	VMOVD        AX, X \
	VPBROADCASTD X, Y

// BYTES32 defines a constant of four times the eight bytes VALUE.
#define BYTES32(NAME, VALUE) \
	DATA  NAME+0(SB)/8, $VALUE \
	DATA  NAME+8(SB)/8, $VALUE \
	DATA  NAME+16(SB)/8, $VALUE \
	DATA  NAME+24(SB)/8, $VALUE \
	GLOBL NAME(SB), RODATA|NOPTR, $32

// DOT4BLOCKS is the body of a dot4 function whose macro BLOCK(P) decodes the 32
// weights at P to Y9-Y12 and moves P on.
#define DOT4BLOCKS(CONSTANTS, BLOCK) \
	DOT4ARGS \
	CONSTANTS \
	SHRQ $5, CX \
loop: \
	LOADX \
	PREFETCH4(0) \
	BLOCK(SI) \
	ADD32(Y0) \
	BLOCK(R8) \
	ADD32(Y1) \
	BLOCK(R9) \
	ADD32(Y2) \
	BLOCK(R10) \
	ADD32(Y3) \
	DECQ CX \
	JNZ  loop \
	STORE4 \
	RET

// DECODEBLOCKS is the body of a decode function of such a format.
#define DECODEBLOCKS(CONSTANTS, BLOCK) \
	DECODEARGS \
	CONSTANTS \
	SHRQ $5, CX \
loop: \
	BLOCK(SI) \
	PUT32 \
	DECQ CX \
	JNZ  loop \
	VZEROUPPER \
	RET

// DOT4WORDS is the body of a dot4 function for numbers of two bytes without
// blocks: EIGHT adds eight products of each row at offset AX and moves it on.
#define DOT4WORDS(EIGHT) \
	DOT4ARGS \
	XORQ AX, AX \
	SUBQ $32, CX \
	JLT  rest \
loop: \
	PREFETCH4(0) \
	ADDQ $64, R11 \
	EIGHT \
	EIGHT \
	EIGHT \
	EIGHT \
	SUBQ $32, CX \
	JGE  loop \
rest: \
	ADDQ $32, CX \
restLoop: \
	SUBQ $8, CX \
	JLT  done \
	EIGHT \
	JMP  restLoop \
done: \
	STORE4 \
	RET
