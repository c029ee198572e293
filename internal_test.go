package haiku

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/intelliparadigm/haiku/internal/ring"
)

func TestParseTraceparent(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	want := traceContext{
		trace: [16]byte{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c},
		span:  [8]byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31},
		flags: 1,
	}
	got, ok := parseTraceparent(good)
	require.True(t, ok)
	require.Equal(t, want, got)
	for _, bad := range []string{
		"", good[:54], good + "0", "01" + good[2:], strings.ToUpper(good), strings.Replace(good, "b7", "g7", 1),
		strings.Replace(good, "-01", "_01", 1), strings.Replace(good, "c-b", "c_b", 1), strings.Replace(good, "-01", "-0x", 1),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
	} {
		_, ok := parseTraceparent(bad)
		require.False(t, ok, bad)
	}
}

// The head of a ring tells a device or a debugger whose it is.
func TestTheRingKnowsItsRequest(t *testing.T) {
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	trace, _ := parseTraceparent(traceparent)
	for _, header := range []string{traceparent, "not one"} {
		var got ring.Meta
		var deadline time.Time
		mux := New()
		mux.Register("/", HandlerFunc(func(c *Context) {
			c.SetIdentity(Identity{Tenant: "tenant"})
			ctx, cancel := context.WithTimeout(c.Context(), time.Hour)
			defer cancel()
			deadline, _ = ctx.Deadline()
			_, err := NewStream(ctx, ModelFunc(func(_ context.Context, w *StreamWriter, _ *Request) error {
				got = w.ring.Meta()
				w.Finish(0, FinishStop)
				return nil
			}), &Request{ID: "id", Tenant: "claimed"}).Text()
			require.NoError(t, err)
		}))
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("traceparent", header)
		mux.ServeHTTP(httptest.NewRecorder(), req)
		require.True(t, deadline.Equal(got.Deadline))
		want := ring.Meta{RequestID: "id", Tenant: "tenant", Deadline: got.Deadline}
		if header == traceparent {
			want.TraceID, want.SpanID, want.TraceFlags = trace.trace, trace.span, trace.flags
		}
		require.Equal(t, want, got)
	}
}

func TestVocabulary(t *testing.T) {
	pieces := [][]byte{[]byte("a\n\""), {0xe4, 0xbd}, nil, []byte("你")}
	v := NewVocabulary(pieces)
	pieces[0][0] = 'X' // copied
	require.Equal(t, 4, v.Len())
	type entry struct {
		piece, wire string
		whole       bool
	}
	var got []entry
	for _, id := range []int32{-1, 0, 1, 2, 3, 4} {
		wire, whole := v.wire(id)
		got = append(got, entry{string(v.Piece(id)), string(wire), whole})
	}
	require.Equal(t, []entry{{}, {"a\n\"", `a\n\"`, true}, {"\xe4\xbd", "", false}, {"", "", true}, {"你", "你", true}, {}}, got)

	var none *Vocabulary
	require.Zero(t, none.Len())
	require.Nil(t, none.Piece(0))
	_ = append(v.Piece(0), 'X')
	require.Equal(t, "\xe4\xbd", string(v.Piece(1)), "pieces do not share spare room")
}

func TestLogprobsSurviveTheRing(t *testing.T) {
	v := NewVocabulary([][]byte{[]byte("zero"), []byte("one")})
	bytes := rapid.SliceOfN(rapid.Byte(), 0, 40)
	one := rapid.Custom(func(t *rapid.T) TokenLogprob {
		lp := TokenLogprob{ID: rapid.Int32().Draw(t, "id"), Logprob: rapid.Float32().Draw(t, "logprob"), Bytes: bytes.Draw(t, "bytes")}
		if lp.Bytes == nil {
			lp.Bytes = []byte{}
		}
		if rapid.Bool().Draw(t, "known") {
			lp.ID = rapid.Int32Range(0, 1).Draw(t, "known id")
			lp.Bytes = v.Piece(lp.ID)
		}
		return lp
	})
	rapid.Check(t, func(t *rapid.T) {
		want := one.Draw(t, "own")
		want.Top = rapid.SliceOfN(one, 0, 20).Draw(t, "top")
		if len(want.Top) == 0 {
			want.Top = nil
		}
		sent := want
		if sent.ID == 0 || sent.ID == 1 {
			sent.Bytes = nil // the vocabulary has them
		}
		if string(want.Bytes) != string(v.Piece(want.ID)) {
			sent.Bytes = want.Bytes
		}
		require.Equal(t, want, decodeLogprobs(appendLogprobs(nil, &sent, 1<<20), v))
	})
}

// discard is a ResponseWriter for measuring: it keeps nothing.
type discard struct {
	header http.Header
	writes int
}

func (d *discard) Header() http.Header                { return d.header }
func (d *discard) WriteHeader(int)                    {}
func (d *discard) Write(b []byte) (int, error)        { d.writes++; return len(b), nil }
func (d *discard) FlushError() error                  { return nil }
func (d *discard) SetReadDeadline(t time.Time) error  { return nil }
func (d *discard) SetWriteDeadline(t time.Time) error { return nil }

// tokenPath answers on w with n tokens of the kind that push makes, and
// returns how many allocations all of it made.
func tokenPath(tb testing.TB, n int, req Request, push func(w *StreamWriter, i int) PushResult) uint64 {
	v := NewVocabulary([][]byte{[]byte(" token"), {0xe4, 0xbd}, {0xa0}})
	m := ModelFunc(func(ctx context.Context, w *StreamWriter, _ *Request) error {
		w.SetVocabulary(v)
		for i := 0; i < n; {
			switch push(w, i) {
			case Pushed:
				i++
			case Full:
				<-w.space
			default:
				tb.Error("the stream has ended early")
				return nil
			}
		}
		w.Finish(0, FinishStop)
		return nil
	})
	mux := New()
	mux.Register("/", HandlerFunc(func(c *Context) {
		require.NoError(tb, c.Stream(NewStream(c.Context(), m, &req)))
	}))
	r := httptest.NewRequest("GET", "/", nil)
	w := &discard{header: http.Header{}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	mux.ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	require.Positive(tb, w.writes)
	return after.Mallocs - before.Mallocs
}

// TestATokenAllocatesNothing counts what a stream allocates with few and with
// many tokens: the difference is what tokens cost on their whole way from
// TryPush to the flush.
func TestATokenAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, push := range map[string]func(*StreamWriter, int) PushResult{
		"vocabulary":         func(w *StreamWriter, _ int) PushResult { return w.TryPush(Piece{ID: 0}) },
		"split characters":   func(w *StreamWriter, i int) PushResult { return w.TryPush(Piece{ID: int32(1 + i%2)}) },
		"texts of their own": func(w *StreamWriter, _ int) PushResult { return w.TryPush(Piece{ID: NoToken, Text: "own\n"}) },
		"deltas":             func(w *StreamWriter, _ int) PushResult { return w.TryPush(Piece{ID: NoToken, Delta: reasoning}) },
	} {
		t.Run(name, func(t *testing.T) {
			req := Request{Stop: []string{"\n\nUser:", "STOP"}}
			few := tokenPath(t, 2_000, req, push)
			many := tokenPath(t, 102_000, req, push)
			require.Less(t, int64(many)-int64(few), int64(200), "allocations for 100000 more tokens")
		})
	}
}

var reasoning = []byte(`"reasoning_content":" token"`)

func BenchmarkDeltaPath(b *testing.B) {
	b.ReportAllocs()
	tokenPath(b, b.N, Request{}, func(w *StreamWriter, _ int) PushResult { return w.TryPush(Piece{ID: NoToken, Delta: reasoning}) })
}

func TestATokenAllocatesNothingInABranch(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var b *Branch
	push := func(w *StreamWriter, i int) PushResult {
		if i == 0 {
			b = w.Branch(func() bool { return true })
			b.w.ctx = w.ctx
			b.w.SetVocabulary(w.vocab)
		}
		return b.w.TryPush(Piece{ID: 0})
	}
	few := tokenPath(t, 2_000, Request{}, push)
	many := tokenPath(t, 102_000, Request{}, push)
	require.Less(t, int64(many)-int64(few), int64(200), "allocations for 100000 more tokens")
}

func BenchmarkTokenPath(b *testing.B) {
	b.ReportAllocs()
	tokenPath(b, b.N, Request{}, func(w *StreamWriter, _ int) PushResult { return w.TryPush(Piece{ID: 0}) })
}

func BenchmarkTokenPathInABranch(b *testing.B) {
	b.ReportAllocs()
	var branch *Branch
	tokenPath(b, b.N, Request{}, func(w *StreamWriter, i int) PushResult {
		if branch == nil {
			branch = w.Branch(func() bool { return true })
			branch.w.ctx = w.ctx
			branch.w.SetVocabulary(w.vocab)
		}
		return branch.w.TryPush(Piece{ID: 0})
	})
}

func TestNoBeatAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := 0
		var b beat
		b.after(0, func() { woken++ })
		b.after(time.Second, func() { woken++ })
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, 1, woken)
		require.True(t, b.due.Swap(false))
		b.after(time.Second, nil)
		b.stop()
		<-time.After(time.Minute)
		require.Equal(t, 1, woken)
		require.False(t, b.due.Load())
	})
}

// FuzzDelta checks anything: what comes out can stand inside an object, on one
// line, and means what went in.
func FuzzDelta(f *testing.F) {
	for _, s := range []string{
		`"a":1`, "\"a\":\n[1]", `"content":1`, `"a":1},{"b":2`, "\"\u2028\":\"\\ud83d\"", " ", `"a":{"content":1}`, `"a":1E700`,
		`"reasoning_content":"…","tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, members string) {
		out, err := new(memberReader).clean([]byte(members))
		if err != nil {
			require.Nil(t, out)
			return
		}
		require.False(t, strings.ContainsAny(string(out), "\n\r\u2028\u2029"))
		if out != nil {
			all := object(t, `"role":"r","content":"c",`+string(out))
			require.Equal(t, []any{"r", "c"}, []any{all["role"], all["content"]})
		}
		require.Equal(t, object(t, members), object(t, string(out)))
	})
}

// object is the object with members, with numbers as they are written: JSON
// sets them no bound, a float64 does.
func object(t *testing.T, members string) (o map[string]any) {
	d := json.NewDecoder(strings.NewReader("{" + members + "}"))
	d.UseNumber()
	require.NoError(t, d.Decode(&o), "%q", members)
	require.ErrorIs(t, d.Decode(new(any)), io.EOF, "%q", members)
	return o
}
