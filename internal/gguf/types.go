//lint:file-ignore ST1003 the types are called what ggml calls them

package gguf

import "fmt"

// Type is a tensor's element type, numbered as in ggml.
type Type uint32

// The element types that are known. Others are refused.
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
)

// typeInfo is how a type is stored: blocks of so many elements in so many
// bytes.
type typeInfo struct {
	name          string
	blockElements int
	blockBytes    int
}

var typeInfos = map[Type]typeInfo{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2}, F64: {"F64", 1, 8},
	I8: {"I8", 1, 1}, I16: {"I16", 1, 2}, I32: {"I32", 1, 4}, I64: {"I64", 1, 8},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
	Q8_0: {"Q8_0", 32, 34}, Q8_1: {"Q8_1", 32, 36},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144},
	Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210}, Q8_K: {"Q8_K", 256, 292},
	IQ2_XXS: {"IQ2_XXS", 256, 66}, IQ2_XS: {"IQ2_XS", 256, 74}, IQ3_XXS: {"IQ3_XXS", 256, 98},
	IQ1_S: {"IQ1_S", 256, 50}, IQ4_NL: {"IQ4_NL", 32, 18}, IQ3_S: {"IQ3_S", 256, 110},
	IQ2_S: {"IQ2_S", 256, 82}, IQ4_XS: {"IQ4_XS", 256, 136}, IQ1_M: {"IQ1_M", 256, 56},
	TQ1_0: {"TQ1_0", 256, 54}, TQ2_0: {"TQ2_0", 256, 66}, MXFP4: {"MXFP4", 32, 17},
	NVFP4: {"NVFP4", 64, 36},
}

// withdrawn are types that ggml had once; their numbers are not used again.
var withdrawn = map[Type]string{
	4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}

// String is the type's name in ggml.
func (t Type) String() string {
	if info, ok := typeInfos[t]; ok {
		return info.name
	}
	if name, ok := withdrawn[t]; ok {
		return name + " (withdrawn)"
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// BlockElements is how many elements one block holds, 0 for an unknown type.
func (t Type) BlockElements() int { return typeInfos[t].blockElements }

// BlockBytes is how many bytes one block takes, 0 for an unknown type.
func (t Type) BlockBytes() int { return typeInfos[t].blockBytes }

// valueType is the type of a metadata value.
type valueType uint32

const (
	typeUint8 valueType = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// minBytes is the least a value of each type takes in a file.
var minBytes = map[valueType]uint64{
	typeUint8: 1, typeInt8: 1, typeBool: 1, typeUint16: 2, typeInt16: 2, typeUint32: 4, typeInt32: 4,
	typeFloat32: 4, typeUint64: 8, typeInt64: 8, typeFloat64: 8, typeString: 8,
}
