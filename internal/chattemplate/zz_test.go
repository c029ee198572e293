package chattemplate
import ("testing";"time";"runtime";"strings")
func TestProbe(t *testing.T) {
	l3 := "{% set l = range(9000)|list %}"
	for _, s := range []string{"x|list|length","x|reverse|length","x|map('upper')|list|length","x|select('equalto','a')|list|length","x|items|list|length","x|title|length","x[::-1]|length","x|int","x|float","x in x","(x~'b') in (x~x)","x|string|length","x.title()|length","x.split()|length","x|capitalize|length","messages|map(attribute=x)|list|length","messages|selectattr(x)|list|length","[x,x]==[x,x]","x|dictsort","x|max","x|min","x|abs","x.count('ab')","x.find('zz')","x.startswith(x)","x.isalpha()","x.splitlines()|length","x|default(x)|length","x|first","x|last","x[1000000]","x is lower","x is in x","l|sort(reverse=true)|first","l|map('string')|sort|first","l|unique|list|length","[l]|sort|length","l|max","l|dictsort","{'a':x}|dictsort","{'a':x}.items()|length","l|map('default',l)|list|length", "l == l", "l|join(',')|length", "l|string|length", "l|reverse|list|length","l[::-1]|length","l|select('lt', 3)|list|length","-x","not x","x|trim|length","x|lower|length","x < x", "x|safe|length","l|sort(attribute=x)|first","messages|sort(attribute='role,role,role,content')|length","messages|map(attribute='a.b.c.d')|list","messages|join(attribute='role')","x|replace('a','b')|length","x|length > 3 and x|length < 2", "x.replace('ab','')|length","1 if x else 2","x|d(1)|length", "9223372036854775807 + 1", "range(9223372036854775800, 9223372036854775807)|list|length","range(0, -9223372036854775807, 4611686018427387904)|list|length", "range(9223372036854775806, 9223372036854775807, 9223372036854775807)|list|length", "-9223372036854775808 // -1", "10000000000000000000000"} {
	tpl, err := Compile(big+l3+"{{ "+s+" }}", Limits{})
	if err != nil { t.Log("compile", s, err); continue }
	var a, c runtime.MemStats
	runtime.ReadMemStats(&a)
	st := time.Now()
	out, err := tpl.Render(t.Context(), conversation)
	d := time.Since(st)
	runtime.ReadMemStats(&c)
	if len(out) > 30 { out = out[:30] }
	mark := ""; if d > 500*time.Millisecond || (c.TotalAlloc-a.TotalAlloc)>>20 > 200 { mark = "!!!" }
	t.Logf("%s%.60q -> %q err %v %v %d MiB", mark, s, out, err, d.Round(time.Millisecond), (c.TotalAlloc-a.TotalAlloc)>>20)
	}
	_ = strings.Repeat
}
