package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku"
)

// ignored are the fields that no answer depends on. Every other field of a
// Request, also one that is added later, must change the key.
var ignored = map[string]bool{"ID": true, "Objective": true, "Encoder": true}

func TestEverythingThatShapesAnAnswerIsInItsKey(t *testing.T) {
	base := func() *haiku.Request {
		seed, scale := uint64(1), 0.5
		more := func() []haiku.Extension { return []haiku.Extension{{Name: "tools", Value: []byte("[{}]")}} }
		return &haiku.Request{
			ID: "id", Tenant: "t", Model: "m", Messages: []haiku.Message{{Role: haiku.RoleUser, Name: "n", Content: "c", Extensions: more()}},
			Extensions: more(),
			Prompt:     "p", PromptTokens: []int32{1}, AdapterScale: &scale, Choices: 2, MaxTokens: 3, Stop: []string{"s"},
			Sampling:  haiku.Sampling{Seed: &seed, LogitBias: map[int32]float32{1: 1}, Mask: haiku.TokenMask{1}},
			Objective: haiku.Objective{Priority: 1, TTFT: time.Second},
		}
	}
	want := KeyOf(base(), "")
	require.Equal(t, want, KeyOf(base(), ""))
	require.NotEqual(t, want, KeyOf(base(), "other"))
	var walk func(path string, get func(*haiku.Request) reflect.Value)
	walk = func(path string, get func(*haiku.Request) reflect.Value) {
		req := base()
		v := get(req)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if name := v.Type().Field(i).Name; !ignored[name] || path != "" {
					walk(path+"."+name, func(r *haiku.Request) reflect.Value { return get(r).Field(i) })
				}
			}
			return
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Int:
			v.SetInt(v.Int() + 1)
		case reflect.Int32:
			v.SetInt(v.Int() + 1)
		case reflect.Uint64, reflect.Uint8:
			v.SetUint(v.Uint() + 1)
		case reflect.Float64, reflect.Float32:
			v.SetFloat(v.Float() + 1)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Pointer:
			require.NotEqual(t, want, func() Key { v.SetZero(); return KeyOf(req, "") }(), path)
			walk(path+"*", func(r *haiku.Request) reflect.Value { return get(r).Elem() })
			return
		case reflect.Slice:
			walk(path+"[0]", func(r *haiku.Request) reflect.Value { return get(r).Index(0) })
			v.Set(reflect.Append(v, v.Index(0)))
		case reflect.Map:
			v.SetMapIndex(reflect.ValueOf(int32(9)), reflect.ValueOf(float32(1)))
		default:
			require.Fail(t, "a kind that this test does not know", "%s %s", path, v.Kind())
		}
		require.NotEqual(t, want, KeyOf(req, ""), path)
	}
	walk("", func(r *haiku.Request) reflect.Value { return reflect.ValueOf(r).Elem() })

	for name := range ignored {
		req := base()
		reflect.ValueOf(req).Elem().FieldByName(name).SetZero()
		require.Equal(t, want, KeyOf(req, ""), name)
	}
}

func TestNeighbouringTextsCannotBeTakenForEachOther(t *testing.T) {
	a := &haiku.Request{Messages: []haiku.Message{{Role: "user", Content: "ab"}, {Role: "user", Content: "c"}}}
	b := &haiku.Request{Messages: []haiku.Message{{Role: "user", Content: "a"}, {Role: "user", Content: "bc"}}}
	c := &haiku.Request{Tenant: "ten", Model: "ant"}
	d := &haiku.Request{Tenant: "tenant"}
	require.NotEqual(t, KeyOf(a, ""), KeyOf(b, ""))
	require.NotEqual(t, KeyOf(c, ""), KeyOf(d, ""))
	require.Equal(t, KeyOf(&haiku.Request{}, ""), KeyOf(&haiku.Request{Choices: 1}, ""), "both ask for one")
}

func TestTheOrderOfExtensionsIsNoPartOfAKey(t *testing.T) {
	a, b := haiku.Extension{Name: "a", Value: []byte("1")}, haiku.Extension{Name: "b", Value: []byte("2")}
	list := []haiku.Extension{b, a}
	key := func(list ...haiku.Extension) Key {
		return KeyOf(&haiku.Request{Extensions: list, Messages: []haiku.Message{{Extensions: list}}}, "")
	}
	require.Equal(t, key(a, b), key(list...))
	require.Equal(t, []haiku.Extension{b, a}, list, "a request is not changed")
	require.NotEqual(t, key(a, b), key(a))
	require.NotEqual(t, key(a), KeyOf(&haiku.Request{Messages: []haiku.Message{{Extensions: []haiku.Extension{a}}}}, ""))
}

func TestThePartitionIsEverythingButTheQuestion(t *testing.T) {
	req := func(tenant, system, user string, more ...haiku.Message) *haiku.Request {
		messages := append([]haiku.Message{{Role: haiku.RoleSystem, Content: system}}, more...)
		return &haiku.Request{Tenant: tenant, Messages: append(messages, haiku.Message{Role: haiku.RoleUser, Content: user})}
	}
	want := partitionOf(req("t", "s", "u"), "", "e", 3)
	require.Equal(t, want, partitionOf(req("t", "s", "v"), "", "e", 3))
	require.NotEqual(t, want, partitionOf(req("t", "s", "u"), "", "another embedder", 3))
	require.NotEqual(t, want, partitionOf(req("t", "s", "u"), "", "e", 4))
	require.NotEqual(t, want, partitionOf(req("x", "s", "u"), "", "e", 3))
	require.NotEqual(t, want, partitionOf(req("t", "x", "u"), "", "e", 3))
	require.NotEqual(t, want, partitionOf(req("t", "s", "u"), "x", "e", 3))
	require.NotEqual(t, want, partitionOf(req("t", "s", "u", haiku.Message{Role: haiku.RoleAssistant, Content: "before"}), "", "e", 3))

	more := []haiku.Extension{{Name: "content", Value: []byte(`[{"type":"image_url"}]`)}}
	extended := req("t", "s", "u")
	extended.Extensions = more
	require.NotEqual(t, want, partitionOf(extended, "", "e", 3))
	for i := range 2 {
		extended = req("t", "s", "u")
		extended.Messages[i].Extensions = more
		require.NotEqual(t, want, partitionOf(extended, "", "e", 3), "message %d", i)
	}
}

// What is hashed is the same bytes wherever they lie.
func TestADigestIsOfAllThatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d digest
		var want []byte
		for range rapid.IntRange(0, 20).Draw(t, "writes") {
			if rapid.Bool().Draw(t, "text") {
				s := strings.Repeat("x", rapid.IntRange(0, 1100).Draw(t, "bytes"))
				d.text(s)
				want = append(binary.LittleEndian.AppendUint64(want, uint64(len(s))), s...)
			} else {
				n := rapid.Uint64().Draw(t, "number")
				d.number(n)
				want = binary.LittleEndian.AppendUint64(want, n)
			}
		}
		require.Equal(t, Key(sha256.Sum256(want)), d.sum())
	})
}
