#include "textflag.h"

// Where the keys lie in secrets, in bytes.
#define FIRST 1040
#define SECOND 1104
#define THIRD 1184
#define FOURTH 1264
#define LAST 1344

// ROUND is a round of the block x under the key at an address.
#define ROUND(at, x, key) \
	MOVOU at(DX), key; \
	AESENC key, x

// FOUR are four rounds of x.
#define FOUR(at, x, key) \
	ROUND(at, x, key) \
	ROUND(at+16, x, key) \
	ROUND(at+32, x, key) \
	ROUND(at+48, x, key)

// WHITE are those after the block was mixed with a key.
#define WHITE(at, x, key) \
	MOVOU at(DX), key; \
	PXOR  key, x; \
	FOUR(at+16, x, key)

// func String(key string) (a, b uint64)
TEXT ·String(SB), NOSPLIT, $0-32
	MOVQ key_base+0(FP), AX
	MOVQ key_len+8(FP), BX
	CMPB ·hasAES(SB), $0
	JE   other
	CMPQ BX, $64 // mostBytes
	JA   other
	LEAQ ·secret(SB), DX
	MOVQ BX, CX
	SHLQ $4, CX
	MOVOU (DX)(CX*1), X5 // lengths[n]
	CMPQ BX, $16
	JA   long
	CMPQ BX, $8
	JB   short
	MOVQ (AX), X0
	PINSRQ $1, -8(AX)(BX*1), X0

one:
	PXOR X5, X0
	FOUR(FIRST, X0, X4)

last:
	ROUND(LAST, X0, X4)
	ROUND(LAST+16, X0, X4)
	MOVQ X0, AX // a load finds a store from here sooner than one from X0
	PEXTRQ $1, X0, BX
	MOVQ AX, a+16(FP)
	MOVQ BX, b+24(FP)
	RET

other:
	JMP ·twice(SB)

short:
	CMPQ BX, $4
	JB   tiny
	MOVL (AX), CX
	MOVL -4(AX)(BX*1), BX
	SHLQ $32, BX
	ORQ  BX, CX
	MOVQ CX, X0
	JMP  one

tiny: // the first byte, that in the middle, and the last
	XORL CX, CX
	TESTQ BX, BX
	JE   none
	MOVBLZX (AX), CX
	MOVBLZX -1(AX)(BX*1), R8
	SHRQ $1, BX
	MOVBLZX (AX)(BX*1), R9
	SHLQ $8, R9
	SHLQ $16, R8
	ORQ  R9, CX
	ORQ  R8, CX

none:
	MOVQ CX, X0
	JMP  one

long:
	MOVOU (AX), X0
	MOVOU -16(AX)(BX*1), X1
	PXOR X5, X0
	CMPQ BX, $32
	JA   longer
	FOUR(FIRST, X0, X4)
	WHITE(SECOND, X1, X6)
	PXOR X1, X0
	JMP  last

longer:
	MOVOU 16(AX), X2
	MOVOU -32(AX)(BX*1), X3
	FOUR(FIRST, X0, X4)
	WHITE(SECOND, X1, X5)
	WHITE(THIRD, X2, X6)
	WHITE(FOURTH, X3, X7)
	PXOR X1, X0
	PXOR X3, X2
	PXOR X2, X0
	JMP  last

// func supported() bool
TEXT ·supported(SB), NOSPLIT, $0-1
	MOVL $1, AX
	XORL CX, CX
	CPUID
	ANDL $(1<<25 | 1<<19), CX
	CMPL CX, $(1<<25 | 1<<19)
	SETEQ ret+0(FP)
	RET
