package haiku_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/intelliparadigm/haiku"

// edges are what the files of a package may import beside the standard
// library: paths in this module without its name, "." being the root, and
// paths of other modules.
type edges struct {
	code  []string
	tests []string // beside code, the package itself and what all tests may
}

const (
	strictJSON  = "github.com/go-json-experiment/json"
	templates   = "github.com/nikolalohinski/gonja/v2"
	system      = "golang.org/x/sys"
	unicodeText = "golang.org/x/text"
	tinyLFU     = "github.com/dgraph-io/ristretto/v2"
	wTinyLFU    = "github.com/maypok86/otter/v2"
	client      = "github.com/openai/openai-go/v3"
	redisClient = "github.com/redis/go-redis/v9"
	gobreaker   = "github.com/sony/gobreaker/v2"
	failsafe    = "github.com/failsafe-go/failsafe-go"
	etcdAPI     = "go.etcd.io/etcd/api/v3"
	etcdClient  = "go.etcd.io/etcd/client/v3"
	etcdLogger  = "go.uber.org/zap"
	grpc        = "google.golang.org/grpc"
	protobuf    = "google.golang.org/protobuf"
)

var public = []string{".", "openai", "infer", "cpu", "batch", "batch/queueing", "cache", "cache/otter", "cache/redis", "fallback", "fallback/etcd", "fallback/redis", "haikutest", "model2vec", "models", "tinymodel", "upstream", "upstream/kserve", "upstream/pool"}

// arrows is the only place where an import between packages, or of another
// module, is allowed. A package in "internal" never imports one above it.
var arrows = map[string]edges{
	".":         {code: []string{"internal/ring", "internal/sse", strictJSON}},
	"openai":    {code: []string{".", strictJSON}, tests: append([]string{client}, public...)},
	"infer":     {code: []string{".", "batch", "internal/gguf", "internal/lora", "internal/schedule", "internal/splitmix", "internal/tokenizer", "internal/chattemplate"}, tests: public},
	"cpu":       {code: []string{"infer", "internal/gguf", "internal/lora", "internal/model", "internal/simd"}, tests: append([]string{"internal/tokenizer"}, public...)},
	"haikutest": {code: []string{".", "infer"}, tests: public},
	"model2vec": {code: []string{".", "internal/safetensors", "internal/tokenizer"}},
	"models":    {code: []string{".", "fallback", "infer", "upstream", "upstream/pool", strictJSON}, tests: public},
	"tinymodel": {tests: append([]string{"internal/gguf", "internal/model"}, public...)},

	"batch":          {},
	"batch/queueing": {},

	"cache":       {code: []string{".", "internal/likeness", "internal/vectors", tinyLFU}, tests: []string{"haikutest"}},
	"cache/redis": {code: []string{"cache", "internal/outage", "internal/redisclient", redisClient}, tests: []string{".", "internal/testserver"}},
	"cache/otter": {code: []string{"cache", wTinyLFU}, tests: []string{"."}},

	"fallback":          {code: []string{"."}, tests: []string{"haikutest", "infer", "openai"}},
	"fallback/redis":    {code: []string{"fallback", "internal/outage", "internal/redisclient", redisClient}, tests: []string{"internal/testserver"}},
	"fallback/etcd":     {code: []string{"fallback", strictJSON, etcdAPI, etcdClient, etcdLogger, grpc}, tests: []string{"internal/testserver"}},
	"fallback/replicas": {tests: []string{"fallback", "fallback/etcd", "fallback/redis", "internal/testserver", redisClient, etcdClient}},
	"upstream":          {code: []string{".", "internal/sse", "internal/sseread", strictJSON}, tests: public},
	"upstream/pool":     {code: []string{".", "fallback", "upstream", "internal/splitmix"}},
	// Nothing but what imports it pays for gRPC.
	"upstream/kserve": {code: []string{".", "upstream", grpc, protobuf}, tests: []string{"haikutest"}},

	"internal/ring":         {},
	"internal/sse":          {},
	"internal/sseread":      {},
	"internal/gguf":         {code: []string{"internal/mmap"}},
	"internal/likeness":     {code: []string{"internal/splitmix", unicodeText}},
	"internal/lora":         {code: []string{"internal/gguf", "internal/safetensors", "internal/simd"}},
	"internal/mmap":         {code: []string{system}},
	"internal/outage":       {},
	"internal/redisclient":  {code: []string{redisClient}},
	"internal/safetensors":  {code: []string{"internal/mmap", strictJSON}},
	"internal/schedule":     {},
	"internal/simd":         {code: []string{system}},
	"internal/splitmix":     {},
	"internal/testserver":   {},
	"internal/vectors":      {code: []string{"internal/simd", "internal/splitmix"}, tests: []string{".", "model2vec"}},
	"internal/tokenizer":    {code: []string{unicodeText}, tests: []string{"internal/gguf"}},
	"internal/chattemplate": {code: []string{templates}},
	"internal/model":        {code: []string{"internal/gguf", "internal/simd"}},

	"examples": {code: public},
	// The benchmarks make models of a given shape and name the kernels in use.
	"bench": {code: append([]string{tinyLFU, gobreaker, failsafe, "internal/gguf", "internal/likeness", "internal/lora", "internal/model", "internal/schedule", "internal/simd", "internal/vectors"}, public...)},
}

var testTools = []string{"github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid"}

// allowed returns what a file may import. Programs in folders below examples
// and bench follow the rule of those.
func (e edges) allowed(own string, isTest bool) []string {
	if !isTest {
		return e.code
	}
	return slices.Concat(e.code, e.tests, testTools, []string{own})
}

// home returns the entry of arrows that rules the files in dir.
func home(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := arrows[dir]; ok {
			return dir
		}
		if top := strings.SplitN(dir, "/", 2)[0]; top != "examples" && top != "bench" {
			return ""
		}
	}
	return "."
}

// covers reports whether one of the allowed paths is, or is a module around,
// the imported one. Folders of this module are not covered by their parents.
func covers(allowed []string, imported string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return a == imported || strings.Contains(a, ".") && a != "." && strings.HasPrefix(imported, a+"/")
	})
}

// TestImportArrows reads the imports of every Go file itself, whatever its
// build tags: a test that asked the go command would be cached, and miss a new
// import.
func TestImportArrows(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && file != "." && (name[0] == '.' || name[0] == '_' || name == "testdata" || name == "node_modules") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(file) != ".go" {
			return nil
		}
		file = filepath.ToSlash(file)
		own := home(path.Dir(file))
		require.NotEmpty(t, own, "%s: its package has no entry in arrows", file)
		seen[own] = true
		for _, imported := range imports(t, file) {
			if !covers(arrows[own].allowed(own, strings.HasSuffix(file, "_test.go")), imported) {
				t.Errorf("%s imports %q, which arrows does not allow", file, imported)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Subset(t, seen, map[string]bool{".": true, "infer": true, "internal/ring": true}, "the walk finds the packages")
}

// imports returns what file imports beside the standard library, as arrows
// names it.
func imports(t *testing.T, file string) (paths []string) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	require.NoError(t, err)
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		rest, mine := strings.CutPrefix(p, module)
		switch {
		case mine && rest == "":
			paths = append(paths, ".")
		case mine && rest[0] == '/':
			paths = append(paths, rest[1:])
		case strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
			paths = append(paths, p)
		}
	}
	return paths
}

// TestNoArrowClimbs checks the table itself: what a package may import, with
// all that follows from it, never comes back to the package.
func TestNoArrowClimbs(t *testing.T) {
	var reach func(from, to string) bool
	reach = func(from, to string) bool {
		return slices.ContainsFunc(arrows[from].code, func(next string) bool { return next == to || reach(next, to) })
	}
	for pkg, e := range arrows {
		require.False(t, reach(pkg, pkg), "%s reaches itself", pkg)
		for _, next := range e.code {
			if strings.HasPrefix(pkg, "internal/") && !strings.Contains(next, ".") {
				require.True(t, strings.HasPrefix(next, "internal/"), "%s climbs to %s", pkg, next)
			}
		}
	}
}

// TestClientsOfSharedServersAreOptional checks that who imports a package for
// one process pays for no client of a server that several share.
func TestClientsOfSharedServersAreOptional(t *testing.T) {
	homes := map[string][]string{
		redisClient: {"cache/redis", "fallback/redis", "internal/redisclient"},
		etcdClient:  {"fallback/etcd"}, etcdAPI: {"fallback/etcd"}, etcdLogger: {"fallback/etcd"},
	}
	for pkg, e := range arrows {
		for client, allowed := range homes {
			require.True(t, !slices.Contains(e.code, client) || slices.Contains(allowed, pkg), "%s imports %s", pkg, client)
		}
		if pkg == "examples" || pkg == "bench" || pkg == "cache/redis" || pkg == "fallback/redis" {
			continue
		}
		for _, optional := range []string{"internal/redisclient", "cache/redis", "fallback/redis", "fallback/etcd"} {
			require.NotContains(t, e.code, optional, pkg)
		}
	}
}

func TestImportRulesRefuse(t *testing.T) {
	for _, tt := range []struct {
		file, imported string
		want           bool
	}{
		{"openai/chat.go", ".", true},
		{"openai/chat.go", "infer", false},
		{"openai/chat.go", "internal/ring", false},
		{"openai/chat_test.go", "infer", true},
		{"stream.go", "infer", false},
		{"stream.go", "github.com/stretchr/testify/require", false},
		{"stream_test.go", "github.com/stretchr/testify/require", true},
		{"stream.go", "github.com/go-json-experiment/json/jsontext", true},
		{"stream.go", "github.com/go-json-experiment/jsonx", false},
		{"internal/mmap/read.go", "golang.org/x/sys/unix", true},
		{"internal/mmap/read.go", ".", false},
		{"cache/redis/options.go", "github.com/redis/go-redis/v9/maintnotifications", true},
		{"cache/redis/store.go", ".", false},
		{"infer/engine.go", "github.com/redis/go-redis/v9", false},
		{"upstream/kserve/engine.go", "google.golang.org/grpc/codes", true},
		{"upstream/kserve/engine.go", "haikutest", false},
		{"upstream/engine.go", "google.golang.org/grpc", false},
		{"upstream/engine.go", "openai", false},
		{"infer/engine.go", "google.golang.org/grpc/codes", false},
		{"fallback/breaker.go", "github.com/redis/go-redis/v9", false},
		{"fallback/breaker.go", "go.etcd.io/etcd/client/v3", false},
		{"fallback/breaker.go", "fallback/etcd", false},
		{"fallback/redis/counters.go", "go.etcd.io/etcd/client/v3", false},
		{"examples/quickstart/main.go", "cpu", true},
		{"examples/quickstart/main.go", "internal/model", false},
		{"bench/main.go", "internal/model", true},
	} {
		own := home(path.Dir(tt.file))
		require.Equal(t, tt.want, covers(arrows[own].allowed(own, strings.HasSuffix(tt.file, "_test.go")), tt.imported), "%s imports %s", tt.file, tt.imported)
	}
	require.Empty(t, home("internal/new"))
	require.Empty(t, home("infer/sub"))
}
