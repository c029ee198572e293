#include "textflag.h"
#include "rows_amd64.h"

// Formats in blocks of 256. A block's scales become float32 on the stack first,
// 64 bytes a row; then groups of 32 weights are read.

BYTES32(bit4<>, 0x1010101010101010)
BYTES32(less32<>, 0x2020202020202020)
BYTES32(bit0<>, 0x0101010101010101)

// The 12 bytes of scales are three words u0, u1, u2. The scales 0-3 and 4-7 and
// the leasts 0-3 and 4-7 are four words of
//
//	u0 & 3f…, u0>>2 & 30… | u2 & 0f…, u1 & 3f…, u1>>2 & 30… | u2>>4 & 0f…
DATA shift01<>+0(SB)/8, $0x0000000200000000
DATA shift01<>+8(SB)/8, $0x0000000200000000
GLOBL shift01<>(SB), RODATA|NOPTR, $16
DATA mask01<>+0(SB)/8, $0x303030303f3f3f3f
DATA mask01<>+8(SB)/8, $0x303030303f3f3f3f
GLOBL mask01<>(SB), RODATA|NOPTR, $16
DATA shift2<>+0(SB)/8, $0x0000000000000000
DATA shift2<>+8(SB)/8, $0x0000000400000000
GLOBL shift2<>(SB), RODATA|NOPTR, $16
DATA mask2<>+0(SB)/8, $0x0f0f0f0f00000000
DATA mask2<>+8(SB)/8, $0x0f0f0f0f00000000
GLOBL mask2<>(SB), RODATA|NOPTR, $16

// KSCALES writes the eight scales and the eight leasts of the Q4_K or Q5_K
// block at P to OFF(SP).
#define KSCALES(P, OFF) \
	VMOVQ        4(P), X9 \
	VPSHUFD      $0x50, X9, X9 \
	VPSRLVD      shift01<>(SB), X9, X9 \
	VPAND        mask01<>(SB), X9, X9 \
	VPBROADCASTD 12(P), X10 \
	VPSRLVD      shift2<>(SB), X10, X10 \
	VPAND        mask2<>(SB), X10, X10 \
	VPOR         X10, X9, X9 \
	VPSRLDQ      $8, X9, X10 \
	VPMOVZXBD    X9, Y9 \
	VPMOVZXBD    X10, Y10 \
	VCVTDQ2PS    Y9, Y9 \
	VCVTDQ2PS    Y10, Y10 \
	HALF(0, P, X8, Y8) \
	HALF(2, P, X13, Y13) \
	VMULPS       Y8, Y9, Y9 \
	VMULPS       Y13, Y10, Y10 \
	VMOVUPS      Y9, OFF(SP) \
	VMOVUPS      Y10, OFF+32(SP)

// KWEIGHTS turns the integers in Y9-Y12 into weights by the scale and the least
// value at OFF(SP)(R13).
#define KWEIGHTS(OFF) \
	VBROADCASTSS OFF(SP)(R13*1), Y8 \
	VBROADCASTSS OFF+32(SP)(R13*1), Y13 \
	FLOATS \
	TIMESMINUS

// Q4KLOW and Q4KHIGH decode a group of 32: the lower or upper halves of the
// bytes at 16(P)(R12); they need Y15 = 15 in every lane.
#define Q4KLOAD(P) \
	VPMOVZXBD 16(P)(R12*1), Y9 \
	VPMOVZXBD 24(P)(R12*1), Y10 \
	VPMOVZXBD 32(P)(R12*1), Y11 \
	VPMOVZXBD 40(P)(R12*1), Y12

#define Q4KLOW(P, OFF) \
	Q4KLOAD(P) \
	VPAND Y15, Y9, Y9 \
	VPAND Y15, Y10, Y10 \
	VPAND Y15, Y11, Y11 \
	VPAND Y15, Y12, Y12 \
	KWEIGHTS(OFF)

#define Q4KHIGH(P, OFF) \
	Q4KLOAD(P) \
	VPSRLD $4, Y9, Y9 \
	VPSRLD $4, Y10, Y10 \
	VPSRLD $4, Y11, Y11 \
	VPSRLD $4, Y12, Y12 \
	KWEIGHTS(OFF)

// GROUP4 adds one group of four rows.
#define GROUP4(GROUP) \
	LOADX \
	GROUP(SI, 0) \
	ADD32(Y0) \
	GROUP(R8, 64) \
	ADD32(Y1) \
	GROUP(R9, 128) \
	ADD32(Y2) \
	GROUP(R10, 192) \
	ADD32(Y3)

#define NEXTROWS(BYTES) \
	ADDQ $BYTES, SI \
	ADDQ $BYTES, R8 \
	ADDQ $BYTES, R9 \
	ADDQ $BYTES, R10

// DOT4K is the body of a dot4 function for Q4_K and Q5_K: two groups share 32
// bytes of nibbles. R12 is their offset, R13 that of the scales. START comes
// before the first group, NEXT between two.
#define DOT4K(CONSTANTS, START, NEXT, LOW, HIGH, BYTES) \
	DOT4ARGS \
	CONSTANTS \
	SHRQ $8, CX \
block: \
	KSCALES(SI, 0) \
	KSCALES(R8, 64) \
	KSCALES(R9, 128) \
	KSCALES(R10, 192) \
	START \
	XORQ R12, R12 \
	XORQ R13, R13 \
pair: \
	PREFETCH4(16) \
	ADDQ $(BYTES/4), R11 \
	GROUP4(LOW) \
	ADDQ $4, R13 \
	NEXT \
	GROUP4(HIGH) \
	ADDQ $4, R13 \
	NEXT \
	ADDQ $32, R12 \
	CMPQ R12, $128 \
	JLT  pair \
	SUBQ $(BYTES/4*4), R11 \
	NEXTROWS(BYTES) \
	DECQ CX \
	JNZ  block \
	STORE4 \
	RET

// DECODEK is the body of a decode function for Q4_K and Q5_K.
#define DECODEK(CONSTANTS, START, NEXT, LOW, HIGH, BYTES) \
	DECODEARGS \
	CONSTANTS \
	SHRQ $8, CX \
block: \
	KSCALES(SI, 0) \
	START \
	XORQ R12, R12 \
	XORQ R13, R13 \
pair: \
	LOW(SI, 0) \
	PUT32 \
	ADDQ $4, R13 \
	NEXT \
	HIGH(SI, 0) \
	PUT32 \
	ADDQ $4, R13 \
	NEXT \
	ADDQ $32, R12 \
	CMPQ R12, $128 \
	JLT  pair \
	ADDQ $BYTES, SI \
	DECQ CX \
	JNZ  block \
	VZEROUPPER \
	RET

#define NOTHING
#define FIFTEEN FILL(15, X15, Y15)

// func dot4Q4K(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4Q4K(SB), NOSPLIT, $256-40
	DOT4K(FIFTEEN, NOTHING, NOTHING, Q4KLOW, Q4KHIGH, 144)

// func spreadQ4K(dst *float32, step int, src *byte, n int)
TEXT ·spreadQ4K(SB), NOSPLIT, $64-32
	DECODEK(FIFTEEN, NOTHING, NOTHING, Q4KLOW, Q4KHIGH, 144)

// Q5_K keeps the fifth bits of the groups 0 to 7 in the bits 0 to 7 of 32
// bytes: Y14 is the group's bit in every byte, Y15 has 15 there.

// Q5KGROUP adds the fifth bits of a group to the nibbles in Y12.
#define Q5KGROUP(P, OFF) \
	VPAND    16(P), Y14, Y13 \
	VPCMPEQB Y14, Y13, Y13 \
	VPAND    bit4<>(SB), Y13, Y13 \
	VPOR     Y13, Y12, Y12 \
	WIDEN(VPMOVZXBD) \
	KWEIGHTS(OFF)

#define Q5KLOW(P, OFF) \
	VPAND 48(P)(R12*1), Y15, Y12 \
	Q5KGROUP(P, OFF)

#define Q5KHIGH(P, OFF) \
	VMOVDQU 48(P)(R12*1), Y12 \
	VPSRLW  $4, Y12, Y12 \
	VPAND   Y15, Y12, Y12 \
	Q5KGROUP(P, OFF)

#define BYTEFIFTEEN FILL(0x0f0f0f0f, X15, Y15)
#define FIRSTBIT VMOVDQU bit0<>(SB), Y14
#define NEXTBIT VPADDB Y14, Y14, Y14

// func dot4Q5K(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4Q5K(SB), NOSPLIT, $256-40
	DOT4K(BYTEFIFTEEN, FIRSTBIT, NEXTBIT, Q5KLOW, Q5KHIGH, 176)

// func spreadQ5K(dst *float32, step int, src *byte, n int)
TEXT ·spreadQ5K(SB), NOSPLIT, $64-32
	DECODEK(BYTEFIFTEEN, FIRSTBIT, NEXTBIT, Q5KLOW, Q5KHIGH, 176)

// Q6_K: see sixBits in kquant.go. R12 is the offset of a half's 64 bytes of
// lower bits, AX that of its 32 bytes of upper ones, R13 that of its scales;
// Y15 has 15 in every byte, Y14 has 0x30.

#define Q6KCONSTANTS \
	FILL(0x30303030, X14, Y14) \
	FILL(0x0f0f0f0f, X15, Y15)

// Q6KSCALES writes the 16 scales of the block at P to OFF(SP).
#define Q6KSCALES(P, OFF) \
	HALF(208, P, X8, Y8) \
	VPMOVSXBD 192(P), Y9 \
	VPMOVSXBD 200(P), Y10 \
	VCVTDQ2PS Y9, Y9 \
	VCVTDQ2PS Y10, Y10 \
	VMULPS    Y8, Y9, Y9 \
	VMULPS    Y8, Y10, Y10 \
	VMOVUPS   Y9, OFF(SP) \
	VMOVUPS   Y10, OFF+32(SP)

// Q6KWEIGHTS joins the lower bits in Y12 with the upper ones in Y13, and takes
// the scales at OFF(SP)(R13).
#define Q6KWEIGHTS(OFF) \
	VPAND        Y15, Y12, Y12 \
	VPAND        Y14, Y13, Y13 \
	VPOR         Y13, Y12, Y12 \
	VPSUBB       less32<>(SB), Y12, Y12 \
	WIDEN(VPMOVSXBD) \
	VBROADCASTSS OFF(SP)(R13*1), Y8 \
	VBROADCASTSS OFF+4(SP)(R13*1), Y13 \
	FLOATS \
	TIMES(Y8, Y13)

#define Q6KQUARTER0(P, OFF) \
	VMOVDQU (P)(R12*1), Y12 \
	VMOVDQU 128(P)(AX*1), Y13 \
	VPSLLW  $4, Y13, Y13 \
	Q6KWEIGHTS(OFF)

#define Q6KQUARTER1(P, OFF) \
	VMOVDQU 32(P)(R12*1), Y12 \
	VMOVDQU 128(P)(AX*1), Y13 \
	VPSLLW  $2, Y13, Y13 \
	Q6KWEIGHTS(OFF+8)

#define Q6KQUARTER2(P, OFF) \
	VMOVDQU (P)(R12*1), Y12 \
	VMOVDQU 128(P)(AX*1), Y13 \
	VPSRLW  $4, Y12, Y12 \
	Q6KWEIGHTS(OFF+16)

#define Q6KQUARTER3(P, OFF) \
	VMOVDQU 32(P)(R12*1), Y12 \
	VMOVDQU 128(P)(AX*1), Y13 \
	VPSRLW  $4, Y12, Y12 \
	VPSRLW  $2, Y13, Y13 \
	Q6KWEIGHTS(OFF+24)

// Q6KNEXTHALF moves on; it sets the flags for JLT.
#define Q6KNEXTHALF \
	ADDQ $32, R13 \
	ADDQ $32, AX \
	ADDQ $64, R12 \
	CMPQ R12, $128

// func dot4Q6K(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4Q6K(SB), NOSPLIT, $256-40
	DOT4ARGS
	Q6KCONSTANTS
	SHRQ $8, CX

block:
	Q6KSCALES(SI, 0)
	Q6KSCALES(R8, 64)
	Q6KSCALES(R9, 128)
	Q6KSCALES(R10, 192)
	XORQ AX, AX
	XORQ R12, R12
	XORQ R13, R13

half:
	PREFETCH4(0)
	GROUP4(Q6KQUARTER0)
	GROUP4(Q6KQUARTER1)
	PREFETCH4(52)
	GROUP4(Q6KQUARTER2)
	GROUP4(Q6KQUARTER3)
	ADDQ $105, R11
	Q6KNEXTHALF
	JLT  half
	SUBQ $210, R11
	NEXTROWS(210)
	DECQ CX
	JNZ  block
	STORE4
	RET

// func spreadQ6K(dst *float32, step int, src *byte, n int)
TEXT ·spreadQ6K(SB), NOSPLIT, $64-32
	DECODEARGS
	Q6KCONSTANTS
	SHRQ $8, CX

block:
	Q6KSCALES(SI, 0)
	XORQ AX, AX
	XORQ R12, R12
	XORQ R13, R13

half:
	Q6KQUARTER0(SI, 0)
	PUT32
	Q6KQUARTER1(SI, 0)
	PUT32
	Q6KQUARTER2(SI, 0)
	PUT32
	Q6KQUARTER3(SI, 0)
	PUT32
	Q6KNEXTHALF
	JLT  half
	ADDQ $210, SI
	DECQ CX
	JNZ  block
	VZEROUPPER
	RET
