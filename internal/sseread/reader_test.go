package sseread

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// copied is an Event whose slices are strings.
type copied struct {
	kind, data, id, stray string
	retry                 int
	hasData               bool
}

func readAll(t require.TestingT, src io.Reader, limit int) (all []copied, raw string, err error) {
	r := NewReader(src, limit)
	defer r.Release()
	var ev Event
	for {
		if err = r.Next(&ev); err != nil {
			return all, raw, err
		}
		raw += string(ev.Raw)
		all = append(all, copied{string(ev.Type), string(ev.Data), string(ev.ID), string(ev.Stray), ev.Retry, ev.HasData})
	}
}

// reference does the same slowly: it splits the whole text into lines and the
// lines into groups.
func reference(text string) (all []copied) {
	text = strings.TrimPrefix(text, "\xEF\xBB\xBF")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	none := copied{retry: -1}
	now, any, lines := none, false, []string(nil)
	give := func() {
		if any {
			now.data, now.hasData = strings.Join(lines, "\n"), len(lines) > 0
			all = append(all, now)
		}
		now, any, lines = none, false, nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" {
			give()
			continue
		}
		any = true
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line[0] == ':':
		case name == "data":
			lines = append(lines, value)
		case name == "event":
			now.kind = value
		case name == "id":
			if !strings.Contains(value, "\x00") {
				now.id = value
			}
		case name == "retry":
			if n, ok := number([]byte(value)); ok {
				now.retry = n
			}
		case now.stray == "":
			now.stray = line
		}
	}
	give()
	return all
}

func TestEventsInEveryFormThatTheStandardAllows(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []copied
	}{
		"LF":                         {"data: a\n\ndata: b\n\n", []copied{{data: "a"}, {data: "b"}}},
		"CRLF":                       {"data: a\r\n\r\ndata: b\r\n\r\n", []copied{{data: "a"}, {data: "b"}}},
		"CR":                         {"data: a\r\rdata: b\r\r", []copied{{data: "a"}, {data: "b"}}},
		"mixed line ends":            {"data: a\r\n\ndata: b\n\rdata: c\r\r\n", []copied{{data: "a"}, {data: "b"}, {data: "c"}}},
		"a byte order mark":          {"\xEF\xBB\xBFdata: a\n\n", []copied{{data: "a"}}},
		"no space":                   {"data:a\n\n", []copied{{data: "a"}}},
		"two spaces":                 {"data:  a\n\n", []copied{{data: " a"}}},
		"comments":                   {": ping\n\ndata: a\n: ping\n\n:\n\n", []copied{{}, {data: "a"}, {}}},
		"several data lines":         {"data: a\ndata: b\ndata:\n\n", []copied{{data: "a\nb\n"}}},
		"empty data":                 {"data:\n\ndata\n\n", []copied{{}, {}}},
		"all fields":                 {"event: e\nid: 7\nretry: 250\ndata: a\n\n", []copied{{kind: "e", id: "7", retry: 250, data: "a"}}},
		"bad id and retry":           {"id: a\x00b\nretry: 2s\ndata: a\n\n", []copied{{data: "a"}}},
		"a field that is no field":   {"error: {\"code\":400}\n\n", []copied{{stray: "error: {\"code\":400}"}}},
		"a line without a colon":     {"{\"error\"}\nsecond\n\n", []copied{{stray: "{\"error\"}"}}},
		"no blank line at the end":   {"data: a\n\ndata: b\n", []copied{{data: "a"}, {data: "b"}}},
		"no line end at the end":     {"data: a\n\ndata: [DONE]", []copied{{data: "a"}, {data: "[DONE]"}}},
		"separators of paragraphs":   {"data: a\u2028b\u0085c\u2029\n\n", []copied{{data: "a\u2028b\u0085c\u2029"}}},
		"many blank lines":           {"\n\n\r\n\ndata: a\n\n\n\n", []copied{{data: "a"}}},
		"nothing":                    {"", nil},
		"only a byte order mark":     {"\xEF\xBB\xBF", nil},
		"a mark that is not first":   {"data: a\n\n\xEF\xBB\xBFdata: b\n\n", []copied{{data: "a"}, {stray: "\xEF\xBB\xBFdata: b"}}},
		"a carriage return in the d": {"data: a\rb\n\n", []copied{{data: "a", stray: "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tt.want {
				w := &tt.want[i]
				if w.retry == 0 {
					w.retry = -1
				}
				w.hasData = strings.Contains(tt.text, "data") && w.stray == "" && (w.data != "" || name == "empty data") || w.data != ""
			}
			for how, wrap := range map[string]func(io.Reader) io.Reader{
				"at once": func(r io.Reader) io.Reader { return r }, "bytewise": iotest.OneByteReader,
				"with the error": iotest.DataErrReader, "halves": iotest.HalfReader,
			} {
				got, _, err := readAll(t, wrap(strings.NewReader(tt.text)), 0)
				require.Equal(t, io.EOF, err, how)
				require.Equal(t, tt.want, got, how)
			}
			require.Equal(t, tt.want, reference(tt.text), "the reference")
		})
	}
}

// chunked gives out a text in pieces of given sizes.
type chunked struct {
	text  string
	sizes []int
}

func (c *chunked) Read(b []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := len(c.text)
	if len(c.sizes) > 0 {
		n, c.sizes = min(c.sizes[0], n), c.sizes[1:]
	}
	n = copy(b, c.text[:n])
	c.text = c.text[n:]
	return n, nil
}

// check returns an error for the first invariant that does not hold.
func (r *Reader) check() error {
	switch {
	case r.start < 0 || r.pos < r.start || r.end < r.pos || r.end > len(r.buf):
		return errors.New("offsets out of order")
	case r.feeds.found && r.feeds.upTo >= r.pos && r.buf[r.feeds.upTo] != '\n':
		return errors.New("the next LF is none")
	case r.feeds.upTo > r.pos && bytes.IndexByte(r.buf[r.pos:r.feeds.upTo], '\n') >= 0:
		return errors.New("an LF where none was said to be")
	case r.noCR > r.end || r.noCR > r.pos && bytes.IndexByte(r.buf[r.pos:r.noCR], '\r') >= 0:
		return errors.New("a CR where none was said to be")
	}
	return nil
}

func TestAnyCutGivesTheEventsOfTheReference(t *testing.T) {
	bit := rapid.SampledFrom([]string{
		"data", "data:", "data: ", "event: x", "id:", "retry: 1", ":", " ", "{\"a\":1}", "é", "\u2028", "[DONE]",
		"\n", "\n", "\n\n", "\r", "\r\n", "\r\n\r\n", "\r\r", "\xEF\xBB\xBF", "\x00", "error: x", strings.Repeat("long ", 5000),
	})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(bit, 0, 60).Draw(t, "text"), "")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 40), 0, 200).Draw(t, "sizes")
		same(t, text, sizes)
	})
}

// same reads text in pieces and compares what comes with the reference.
func same(t require.TestingT, text string, sizes []int) {
	r := NewReader(&chunked{text, sizes}, 0)
	defer r.Release()
	var got []copied
	var raw strings.Builder
	for done := false; !done; {
		var ev Event
		r.Mark()
		marked := ""
		for r.Scan(&ev) {
			raw.Write(ev.Raw)
			marked += string(ev.Raw)
			require.Equal(t, reference("\n"+marked), reference("\n"+string(r.Marked())))
			got = append(got, copied{string(ev.Type), string(ev.Data), string(ev.ID), string(ev.Stray), ev.Retry, ev.HasData})
			require.NoError(t, r.check())
		}
		if !done {
			done = r.Fill() == io.EOF
			require.NoError(t, r.check())
			if done && r.Last(&ev) {
				raw.Write(ev.Raw)
				got = append(got, copied{string(ev.Type), string(ev.Data), string(ev.ID), string(ev.Stray), ev.Retry, ev.HasData})
			}
		}
	}
	require.Equal(t, reference(text), got)
	require.Equal(t, reference(text), reference("\n"+raw.String()), "the raw events say the same")
}

func FuzzReader(f *testing.F) {
	f.Add("data: a\n\ndata: b\r\n\r\n", []byte{1, 2, 3})
	f.Add("\xEF\xBB\xBFevent: e\rdata\r\r\n: c\n\nx", []byte{7})
	f.Add("data: a\r", []byte{8, 1})
	f.Fuzz(func(t *testing.T, text string, cuts []byte) {
		sizes := make([]int, len(cuts))
		for i, c := range cuts {
			sizes[i] = int(c) + 1
		}
		same(t, text, sizes)
	})
}

func TestALongLineIsReadUpToTheLimit(t *testing.T) {
	text := "data: " + strings.Repeat("x", 300<<10) + "\n\ndata: b\n\n"
	got, _, err := readAll(t, iotest.HalfReader(strings.NewReader(text)), 0)
	require.Equal(t, io.EOF, err)
	require.Len(t, got, 2)
	require.Len(t, got[0].data, 300<<10)
	_, _, err = readAll(t, strings.NewReader(text), 100<<10)
	require.ErrorIs(t, err, ErrTooLong)
	_, _, err = readAll(t, strings.NewReader("data: 123456789\n\n"), 8)
	require.ErrorIs(t, err, ErrTooLong, "also where it lies in the buffer at once")
	_, _, err = readAll(t, strings.NewReader(strings.Repeat(": ping\n", 1000)), 1000)
	require.ErrorIs(t, err, ErrTooLong, "comments without an end are bounded")
	got, _, err = readAll(t, strings.NewReader(strings.Repeat(": ping\n\n", 1000)), 16)
	require.Equal(t, io.EOF, err)
	require.Len(t, got, 1000)
}

func TestABrokenReadComesAfterTheEventsBeforeIt(t *testing.T) {
	broken := errors.New("broken")
	got, _, err := readAll(t, io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken)), 0)
	require.Equal(t, broken, err)
	require.Equal(t, []copied{{data: "a", hasData: true, retry: -1}}, got, "half an event is none")
	_, _, err = readAll(t, idle{}, 0)
	require.Equal(t, io.ErrNoProgress, err)
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestALineOfCarriageReturnsIsNotSearchedAgainAndAgain(t *testing.T) {
	text := "data: " + strings.Repeat("data\r", 1<<20) + "\r"
	got, _, err := readAll(t, strings.NewReader(text), 0)
	require.Equal(t, io.EOF, err)
	require.Len(t, got, 1)
}

// TestALongLineInSmallReadsIsNotSearchedAgainAndAgain takes minutes if each read
// looks at all of the line.
func TestALongLineInSmallReadsIsNotSearchedAgainAndAgain(t *testing.T) {
	r := NewReader(&endless{text: strings.Repeat("x", 16)}, 8<<20)
	defer r.Release()
	var ev Event
	require.ErrorIs(t, r.Next(&ev), ErrTooLong)
}

func TestALastEventThatIsTooLongIsNoGoodEnd(t *testing.T) {
	_, _, err := readAll(t, iotest.DataErrReader(strings.NewReader("data: 123456789")), 8)
	require.ErrorIs(t, err, ErrTooLong)
}

// endless repeats a text.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(b []byte) (n int, _ error) {
	n = copy(b, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

const frame = "data: {\"id\":\"chatcmpl-0123456789abcdef01234567\",\"object\":\"chat.completion.chunk\",\"created\":1764592000," +
	"\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" autumn\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n"

func TestAnEventAllocatesNothing(t *testing.T) {
	for _, text := range []string{frame, "event: a\r\ndata: b\r\ndata: c\r\n\r\n"} {
		r := NewReader(&endless{text: text}, 0)
		var ev Event
		for range 1000 {
			require.NoError(t, r.Next(&ev))
		}
		require.Zero(t, testing.AllocsPerRun(1000, func() { _ = r.Next(&ev) }))
		r.Release()
	}
}

func BenchmarkNext(b *testing.B) {
	r := NewReader(&endless{text: frame}, 0)
	defer r.Release()
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	var ev Event
	for b.Loop() {
		if err := r.Next(&ev); err != nil {
			b.Fatal(err)
		}
	}
}
