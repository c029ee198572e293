#include "textflag.h"
#include "rows_amd64.h"

// Formats in blocks of 32.

BYTES32(sixteen<>, 0x1010101010101010)
BYTES32(less16<>, 0xf0f0f0f0f0f0f0f0)
BYTES32(bit<>, 0x8040201008040201)

// fifths repeats byte i of a group of four for the weights 8i to 8i+7.
DATA fifths<>+0(SB)/8, $0x0000000000000000
DATA fifths<>+8(SB)/8, $0x0101010101010101
DATA fifths<>+16(SB)/8, $0x0202020202020202
DATA fifths<>+24(SB)/8, $0x0303030303030303
GLOBL fifths<>(SB), RODATA|NOPTR, $32

#define NOTHING

#define Q8BLOCK(P) \
	HALF(0, P, X8, Y8) \
	VPMOVSXBD 2(P), Y9 \
	VPMOVSXBD 10(P), Y10 \
	VPMOVSXBD 18(P), Y11 \
	VPMOVSXBD 26(P), Y12 \
	FLOATS \
	TIMES(Y8, Y8) \
	ADDQ      $34, P

// func dot4Q80(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4Q80(SB), NOSPLIT, $0-40
	DOT4BLOCKS(NOTHING, Q8BLOCK)

// func spreadQ80(dst *float32, step int, src *byte, n int)
TEXT ·spreadQ80(SB), NOSPLIT, $0-32
	DECODEBLOCKS(NOTHING, Q8BLOCK)

// NIBBLES spreads the 16 bytes at OFF(P): the lower halves to Y9 and Y10, the
// upper ones to Y11 and Y12; needs Y15 = 15 in every lane.
#define NIBBLES(OFF, P) \
	VPMOVZXBD OFF(P), Y9 \
	VPMOVZXBD OFF+8(P), Y10 \
	VPSRLD    $4, Y9, Y11 \
	VPSRLD    $4, Y10, Y12 \
	VPAND     Y15, Y9, Y9 \
	VPAND     Y15, Y10, Y10

#define FIFTEEN FILL(15, X15, Y15)

// Nibble × scale - 8 × scale is exact in one fused step; Y14 is -8.
#define Q40CONSTANTS \
	FIFTEEN \
	FILL(0xc1000000, X14, Y14)

#define Q40BLOCK(P) \
	HALF(0, P, X8, Y8) \
	VMULPS Y14, Y8, Y13 \
	NIBBLES(2, P) \
	FLOATS \
	TIMESPLUS \
	ADDQ   $18, P

// func dot4Q40(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4Q40(SB), NOSPLIT, $0-40
	DOT4BLOCKS(Q40CONSTANTS, Q40BLOCK)

// func spreadQ40(dst *float32, step int, src *byte, n int)
TEXT ·spreadQ40(SB), NOSPLIT, $0-32
	DECODEBLOCKS(Q40CONSTANTS, Q40BLOCK)

#define Q41BLOCK(P) \
	HALF(0, P, X8, Y8) \
	HALF(2, P, X13, Y13) \
	NIBBLES(4, P) \
	FLOATS \
	TIMESPLUS \
	ADDQ $20, P

// func dot4Q41(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4Q41(SB), NOSPLIT, $0-40
	DOT4BLOCKS(FIFTEEN, Q41BLOCK)

// func spreadQ41(dst *float32, step int, src *byte, n int)
TEXT ·spreadQ41(SB), NOSPLIT, $0-32
	DECODEBLOCKS(FIFTEEN, Q41BLOCK)

// BYTENIBBLES puts the 32 nibbles of the 16 bytes at OFF(P) to the bytes of
// Y12, in the order of the weights; needs Y15 = 15 in every byte.
#define BYTENIBBLES(OFF, P) \
	VMOVDQU     OFF(P), X12 \
	VPSRLW      $4, X12, X13 \
	VINSERTI128 $1, X13, Y12, Y12 \
	VPAND       Y15, Y12, Y12

// FIFTHBITS sets the bytes of Y13 whose bit is set in the 32 bits at OFF(P);
// needs Y14 = bit.
#define FIFTHBITS(OFF, P) \
	VPBROADCASTD OFF(P), Y13 \
	VPSHUFB      fifths<>(SB), Y13, Y13 \
	VPAND        Y14, Y13, Y13 \
	VPCMPEQB     Y14, Y13, Y13

#define Q5CONSTANTS \
	FILL(0x0f0f0f0f, X15, Y15) \
	VMOVDQU bit<>(SB), Y14

// A weight of Q5_0 less 16 is its nibble where the fifth bit is set, and its
// nibble under four ones where it is not.
#define Q50BLOCK(P) \
	BYTENIBBLES(6, P) \
	FIFTHBITS(2, P) \
	VPANDN less16<>(SB), Y13, Y13 \
	VPOR   Y13, Y12, Y12 \
	HALF(0, P, X8, Y8) \
	WIDEN(VPMOVSXBD) \
	FLOATS \
	TIMES(Y8, Y8) \
	ADDQ   $22, P

// func dot4Q50(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4Q50(SB), NOSPLIT, $0-40
	DOT4BLOCKS(Q5CONSTANTS, Q50BLOCK)

// func spreadQ50(dst *float32, step int, src *byte, n int)
TEXT ·spreadQ50(SB), NOSPLIT, $0-32
	DECODEBLOCKS(Q5CONSTANTS, Q50BLOCK)

#define Q51BLOCK(P) \
	BYTENIBBLES(8, P) \
	FIFTHBITS(4, P) \
	VPAND sixteen<>(SB), Y13, Y13 \
	VPOR  Y13, Y12, Y12 \
	HALF(0, P, X8, Y8) \
	HALF(2, P, X13, Y13) \
	WIDEN(VPMOVZXBD) \
	FLOATS \
	TIMESPLUS \
	ADDQ  $24, P

// func dot4Q51(dst *[quad]float32, w *byte, rowBytes int, x *float32, cols int)
TEXT ·dot4Q51(SB), NOSPLIT, $0-40
	DOT4BLOCKS(Q5CONSTANTS, Q51BLOCK)

// func spreadQ51(dst *float32, step int, src *byte, n int)
TEXT ·spreadQ51(SB), NOSPLIT, $0-32
	DECODEBLOCKS(Q5CONSTANTS, Q51BLOCK)
