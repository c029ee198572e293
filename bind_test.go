package haiku_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// payload has a field of each shape that requests have.
type payload struct {
	Model     string             `json:"model"`
	Stream    *bool              `json:"stream"`
	MaxTokens *int               `json:"max_tokens"`
	Temp      float64            `json:"temperature"`
	Messages  []message          `json:"messages"`
	Bias      map[string]float32 `json:"logit_bias"`
	Meta      any                `json:"metadata"`
	Own       own                `json:"own"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// own is a type that judges its values itself.
type own struct{}

func (own) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if err := d.SkipValue(); err != nil {
		return err
	}
	return haiku.ErrUnsupported.With("own", "never supported")
}

// bind gives body, with headers as "Name: value", to Bind.
func bind(t testing.TB, v any, body io.Reader, headers ...string) error {
	req := httptest.NewRequest("POST", "/", body)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	var err error
	mux := haiku.New()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) { err = c.Bind(v) }), haiku.BodyLimit(1<<20))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, req)
	require.Equal(t, 200, rec.Code, "Bind itself answers nothing and does not panic")
	return err
}

func TestBind(t *testing.T) {
	yes, five := true, 5
	for _, headers := range [][]string{nil, {"Content-Type: application/json"}, {"Content-Type: Application/JSON; charset=utf-8"},
		{"Content-Type: application/vnd.own+json"}, {"Content-Encoding: identity"}} {
		var got payload
		require.NoError(t, bind(t, &got, strings.NewReader(` {"model":"m", "stream":true, "max_tokens":5, "temperature":1e0,
			"messages":[{"role":"user","content":"\ud83d\ude00"}], "logit_bias":{"7":-1}, "unknown":1} `), headers...))
		require.Equal(t, payload{Model: "m", Stream: &yes, MaxTokens: &five, Temp: 1,
			Messages: []message{{"user", "😀"}}, Bias: map[string]float32{"7": -1}}, got)
	}
}

func TestNullIsAbsent(t *testing.T) {
	var got payload
	require.NoError(t, bind(t, &got, strings.NewReader(
		`{"model":null,"stream":null,"max_tokens":null,"temperature":null,"messages":null,"logit_bias":null,"metadata":null}`)))
	require.Equal(t, payload{}, got)
}

func TestKeysMatchInCase(t *testing.T) {
	var got payload
	require.NoError(t, bind(t, &got, strings.NewReader(
		`{"model":"a","MODEL":"b","Model":"c","max_Tokens":99999,"me\u017f\u017fages":[{}],"ſtream":true}`)))
	require.Equal(t, payload{Model: "a"}, got)
}

func TestBindRefuses(t *testing.T) {
	invalid := func(param, message string) *haiku.Error { return haiku.ErrInvalidRequest.With(param, "%s", message) }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	tooDeep := invalid("", "the body is nested more than 128 levels deep")
	for _, tt := range []struct {
		name, body string
		want       *haiku.Error
	}{
		{"nothing", "", invalid("", "the request has no body")},
		{"spaces", " \n", invalid("", "the body is not valid JSON at byte 2")},
		{"a byte order mark", "\uFEFF{}", invalid("", "the body is not valid JSON at byte 0")},
		{"garbage", "model=x", invalid("", "the body is not valid JSON at byte 0")},
		{"a second value", `{} {}`, invalid("", "the body is not valid JSON at byte 3")},
		{"trailing garbage", `{}x`, invalid("", "the body is not valid JSON at byte 2")},
		{"an open object", `{"model":"x"`, invalid("", "the body is not valid JSON at byte 12")},
		{"a comment", `{/**/}`, invalid("", "the body is not valid JSON at byte 1")},
		{"a trailing comma", `{"messages":[{},]}`, invalid("messages", "the body is not valid JSON at byte 15")},
		{"NaN", `{"temperature":NaN}`, invalid("temperature", "the body is not valid JSON at byte 15")},
		{"a leading zero", `{"max_tokens":01}`, invalid("", "the body is not valid JSON at byte 15")},
		{"a raw newline in a string", "{\"model\":\"a\nb\"}", invalid("model", "the body is not valid JSON at byte 11")},

		{"a key twice", `{"model":"allowed","model":"secret"}`, invalid("model", "the field is given twice")},
		{"the same key twice", `{"stream":true,"stream":false}`, invalid("stream", "the field is given twice")},
		{"a key twice, once escaped", `{"model":"a","mod\u0065l":"b"}`, invalid("model", "the field is given twice")},
		{"a key twice in a message", `{"messages":[{"role":"a","content":"b"},{"content":"a","role":"b","content":"c"}]}`,
			invalid("messages[1].content", "the field is given twice")},
		{"an unknown key twice", `{"metadata":{"a":1,"a":2}}`, invalid("metadata.a", "the field is given twice")},
		{"a key twice in what is skipped", `{"unknown":{"a":1,"a":2}}`, invalid("unknown.a", "the field is given twice")},

		{"a lone surrogate", `{"model":"\ud800"}`, invalid("model", "the body is not valid JSON at byte 10")},
		{"a lone low surrogate", `{"model":"\udc00x"}`, invalid("model", "the body is not valid JSON at byte 10")},
		{"invalid UTF-8", "{\"model\":\"\xff\"}", invalid("model", "the body is not valid JSON at byte 10")},
		{"invalid UTF-8 in a key", "{\"mod\xff\":1}", invalid("", "the body is not valid JSON at byte 5")},

		{"a string for a number", `{"max_tokens":"5"}`, invalid("max_tokens", "the value has the wrong type: found a string")},
		{"a fraction", `{"max_tokens":1.5}`, invalid("max_tokens", "the value has the wrong type: found the number 1.5")},
		{"more than an int", `{"max_tokens":9223372036854775808}`, invalid("max_tokens", "the value has the wrong type: found the number 9223372036854775808")},
		{"an exponent", `{"max_tokens":1e18}`, invalid("max_tokens", "the value has the wrong type: found the number 1e18")},
		{"more than a float", `{"temperature":1e999}`, invalid("temperature", "the value has the wrong type: found the number 1e999")},
		{"more than a float32", `{"logit_bias":{"7":1e300}}`, invalid("logit_bias[7]", "the value has the wrong type: found the number 1e300")},
		{"an object for a string", `{"messages":[{"content":{}}]}`, invalid("messages[0].content", "the value has the wrong type: found an object")},
		{"an array for a string", `{"messages":[{},{"role":[]}]}`, invalid("messages[1].role", "the value has the wrong type: found an array")},
		{"a number for an array", `{"messages":7}`, invalid("messages", "the value has the wrong type: found a number")},
		{"a boolean for a string", `{"model":true}`, invalid("model", "the value has the wrong type: found a boolean")},
		{"an array for it all", `[]`, invalid("", "the value has the wrong type: found an array")},
		{"a type's own judgement", `{"own":1}`, haiku.ErrUnsupported.With("own", "never supported")},

		{"depth 129", deep(129), tooDeep},
		{"depth 9000", deep(9000), tooDeep},
		{"depth 200000", deep(200000), tooDeep},
		{"depth in a field", `{"messages":[],"metadata":` + deep(128) + `}`, tooDeep},
		{"depth in what is skipped", `{"unknown":` + deep(200000) + `}`, tooDeep},
		{"depth that never closes", strings.Repeat(`{"a":`, 100000), tooDeep},
		{"depth behind escaped quotes", `{"a":"\"[[\\","metadata":` + deep(200) + `}`, tooDeep},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got *haiku.Error
			require.ErrorAs(t, bind(t, new(payload), strings.NewReader(tt.body)), &got)
			clear := *got
			clear.Err = nil
			require.Equal(t, tt.want, &clear)
		})
	}
}

func TestDepthIsCountedOutsideOfStrings(t *testing.T) {
	var got payload
	require.NoError(t, bind(t, &got, strings.NewReader(`{"metadata":`+strings.Repeat("[", 127)+strings.Repeat("]", 127)+`}`)))
	got = payload{}
	require.NoError(t, bind(t, &got, strings.NewReader(`{"model":"`+strings.Repeat(`[{\"`, 5000)+`"}`)))
	require.Equal(t, strings.Repeat(`[{"`, 5000), got.Model)
}

func TestBodiesTooLarge(t *testing.T) {
	want := haiku.ErrBodyTooLarge.With("", "the body is larger than 1048576 bytes")
	exact := `{"model":"` + strings.Repeat("x", 1<<20-12) + `"}`
	for name, reader := range map[string]func(s string) io.Reader{
		"with Content-Length": func(s string) io.Reader { return strings.NewReader(s) },
		"without":             func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) },
	} {
		require.NoError(t, bind(t, new(payload), reader(exact)), name)
		require.Equal(t, want, bind(t, new(payload), reader(exact+" ")), name)
	}
}

func TestABodyThatSaysItIsTooLargeIsNotRead(t *testing.T) {
	answered(haiku.HandlerFunc(func(c *haiku.Context) {
		c.Request.Body = io.NopCloser(brokenReader{})
		c.Request.ContentLength = 4<<20 + 1
		require.ErrorIs(t, c.Bind(new(payload)), haiku.ErrBodyTooLarge)
	}), "/")
}

func TestTheDefaultLimitOfABody(t *testing.T) {
	var err error
	rec := answered(haiku.HandlerFunc(func(c *haiku.Context) {
		c.Request.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 4<<20+1)))
		c.Request.ContentLength = -1
		err = c.Bind(new(payload))
		c.AbortWithError(err)
	}), "/")
	require.Equal(t, haiku.ErrBodyTooLarge.With("", "the body is larger than 4194304 bytes"), err)
	require.Equal(t, 413, rec.Code)
}

func TestContentTypes(t *testing.T) {
	for _, headers := range [][]string{
		{"Content-Type: text/plain"}, {"Content-Type: multipart/form-data; boundary=x"}, {"Content-Type: application/x-www-form-urlencoded"},
		{"Content-Type: json"}, {"Content-Type: ;;;"}, {"Content-Type: application/jsonx"},
		{"Content-Encoding: gzip", "Content-Type: application/json"},
		{"Content-Type: " + strings.Repeat("x", 5000)},
	} {
		var got *haiku.Error
		require.ErrorAs(t, bind(t, new(payload), strings.NewReader("{}"), headers...), &got)
		require.Equal(t, http.StatusUnsupportedMediaType, got.Status)
		require.ErrorIs(t, got, haiku.ErrInvalidRequest)
		require.Less(t, len(got.Message), 300, "what a client sent is shown in part")
	}
}

func TestABodyThatBreaksOff(t *testing.T) {
	err := bind(t, new(payload), io.MultiReader(strings.NewReader(`{"model":`), brokenReader{}))
	require.ErrorIs(t, err, haiku.ErrInvalidRequest)
	require.ErrorIs(t, err, errBroken)
	require.NotContains(t, haiku.ErrorFrom(err).Message, "broken")
}

var errBroken = errors.New("broken")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func TestARequestWithoutABody(t *testing.T) {
	var err error
	mux := haiku.New()
	mux.Register("/", haiku.HandlerFunc(func(c *haiku.Context) { err = c.Bind(new(payload)) }))
	req, e := http.NewRequest("POST", "http://haiku/", nil)
	require.NoError(t, e)
	mux.ServeHTTP(httptest.NewRecorder(), req)
	require.Equal(t, haiku.ErrInvalidRequest.With("", "the request has no body"), err)
}

func FuzzBind(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`, `{"model":"a","model":"b"}`, "\uFEFF{}", `{} {}`,
		`{"metadata":[[[[[[[[]]]]]]]]}`, `{"max_tokens":9223372036854775808}`, `{"model":"\ud800"}`, "{\"\xff\":1}", `{"own":[1]}`,
		`{"logit_bias":{"~1/a":1e300}}`, strings.Repeat("[", 200), `"\"[\\`, ``, `null`, `{"messages":[{"content":"` + "\x00" + `"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := bind(t, new(payload), strings.NewReader(string(body)))
		if err == nil {
			return
		}
		var e *haiku.Error
		require.ErrorAs(t, err, &e)
		require.GreaterOrEqual(t, e.Status, 400)
		require.Less(t, e.Status, 500)
		require.Less(t, len(e.Message), 400)
	})
}
