package simd

import "golang.org/x/sys/cpu"

func hasAVX2() bool {
	return cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C && cpu.X86.HasOSXSAVE
}

func hasAVX512() bool { return hasAVX2() && cpu.X86.HasAVX512F }
