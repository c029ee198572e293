package haikutest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEventsAreReadAsABrowserReadsThem(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   []Event
	}{
		"nothing":                      {"", nil},
		"one":                          {"data: a\n\n", []Event{{Data: "a"}}},
		"without a space":              {"data:a\n\n", []Event{{Data: "a"}}},
		"one space only is dropped":    {"data:  a\n\n", []Event{{Data: " a"}}},
		"several lines":                {"data: a\ndata:\ndata: b\n\n", []Event{{Data: "a\n\nb"}}},
		"empty data":                   {"data:\n\n", []Event{{}}},
		"a field without a colon":      {"data\n\n", []Event{{}}},
		"a colon in the data":          {"data: {\"a\":1}\n\n", []Event{{Data: `{"a":1}`}}},
		"all fields":                   {"id: 7\nevent: x\nretry: 1500\ndata: a\n\n", []Event{{ID: "7", Name: "x", Retry: 1500 * time.Millisecond, Data: "a"}}},
		"fields of one event only":     {"id: 7\nevent: x\ndata: a\n\ndata: b\n\n", []Event{{ID: "7", Name: "x", Data: "a"}, {Data: "b"}}},
		"no data, no event":            {"event: x\n\ndata: a\n\n", []Event{{Data: "a"}}},
		"an unknown field":             {"time: 1\ndata: a\nDATA: b\n\n", []Event{{Data: "a"}}},
		"a retry that is no number":    {"retry: -1\nretry: 1s\nretry: +2\ndata: a\n\n", []Event{{Data: "a"}}},
		"an id with a zero":            {"id: 1\nid: a\x00b\ndata: a\n\n", []Event{{ID: "1", Data: "a"}}},
		"a comment":                    {": keepalive\n\ndata: a\n\n", []Event{{Comment: "keepalive"}, {Data: "a"}}},
		"a comment within an event":    {"data: a\n:b\n: c\n\n", []Event{{Data: "a", Comment: "b\nc"}}},
		"an empty comment":             {":\n\n", []Event{{}}},
		"CRLF":                         {"data: a\r\ndata: b\r\n\r\n", []Event{{Data: "a\nb"}}},
		"CR":                           {"data: a\rdata: b\r\r", []Event{{Data: "a\nb"}}},
		"a mixture":                    {"data: a\r\ndata: b\n\rdata: c\r\n\n", []Event{{Data: "a\nb"}, {Data: "c"}}},
		"a byte order mark":            {"\uFEFFdata: a\n\n", []Event{{Data: "a"}}},
		"blank lines":                  {"\n\n\ndata: a\n\n\n\n", []Event{{Data: "a"}}},
		"cut after the data":           {"data: a\n\ndata: b\n", []Event{{Data: "a"}}},
		"cut in the data":              {"data: a\n\ndata: b", []Event{{Data: "a"}}},
		"other whitespace is no end":   {"data: a\u2028b\vc\n\n", []Event{{Data: "a\u2028b\vc"}}},
		"invalid UTF-8 is left as is":  {"data: \xff\n\n", []Event{{Data: "\xff"}}},
		"a line that is only a colon":  {":\ndata: a\n\n", []Event{{Data: "a"}}},
		"a name set twice":             {"event: x\nevent: y\ndata: a\n\n", []Event{{Name: "y", Data: "a"}}},
		"the usual end of an answer":   {"data: {}\n\ndata: [DONE]\n\n", []Event{{Data: "{}"}, {Data: "[DONE]"}}},
		"a keepalive before the first": {":\n\n: keepalive\n\ndata: a\n\n", []Event{{}, {Comment: "keepalive"}, {Data: "a"}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, ParseEvents(c.stream)) })
	}
}

// write is the inverse of ParseEvents, with any of the three line ends.
func write(e Event, end string) string {
	var b strings.Builder
	line := func(field, value string) { b.WriteString(field + ": " + value + end) }
	if e.Name != "" {
		line("event", e.Name)
	}
	if e.ID != "" {
		line("id", e.ID)
	}
	for comment := range strings.SplitSeq(e.Comment, "\n") {
		line("", comment)
	}
	for data := range strings.SplitSeq(e.Data, "\n") {
		line("data", data)
	}
	return b.String() + end
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	word := rapid.StringMatching(`[ -~é\x{1F600}:]{0,6}`)
	lines := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(word, 1, 3).Draw(t, "lines"), "\n")
	})
	event := rapid.Custom(func(t *rapid.T) Event {
		return Event{Name: word.Draw(t, "name"), ID: word.Draw(t, "id"), Data: lines.Draw(t, "data"), Comment: lines.Draw(t, "comment")}
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(event, 1, 4).Draw(t, "events")
		var stream string
		for _, e := range want {
			stream += write(e, rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end"))
		}
		require.Equal(t, want, ParseEvents(stream))
	})
}

// Whatever comes, a stream that is cut yields the first events of the whole
// one, and line ends may be written in any way.
func FuzzParseEvents(f *testing.F) {
	f.Add("data: a\n\n: b\n\nevent: x\ndata: c\ndata\n\n", uint16(9))
	f.Add("\uFEFFid: 1\r\n\r\ndata:\r\rretry: 5\n\n", uint16(3))
	f.Add("data: \xff\x00\n\n", uint16(0))
	f.Fuzz(func(t *testing.T, stream string, cut uint16) {
		whole := ParseEvents(stream)
		if end := min(int(cut), len(stream)); !strings.HasSuffix(stream[:end], "\r") {
			part := ParseEvents(stream[:end])
			require.Equal(t, part, append([]Event(nil), whole[:len(part)]...))
		}
		one := strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
		require.Equal(t, whole, ParseEvents(one))
		require.Equal(t, whole, ParseEvents(strings.ReplaceAll(one, "\n", "\r\n")))
	})
}
