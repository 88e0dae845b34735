#include "textflag.h"

// func Lines(first unsafe.Pointer)
TEXT ·Lines(SB), NOSPLIT, $0-8
	MOVQ first+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET

// func Own(line unsafe.Pointer)
TEXT ·Own(SB), NOSPLIT, $0-8
	MOVQ line+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX), which the assembler does not know
	RET
