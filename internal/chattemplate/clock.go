package chattemplate

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// directives of strftime in C's locale, as layouts of package time. Those
// without a layout are in [strftime] itself.
var directives = map[string]string{
	"%a": "Mon", "%A": "Monday", "%b": "Jan", "%B": "January", "%h": "Jan",
	"%d": "02", "%e": "_2", "%j": "002", "%m": "01", "%y": "06", "%Y": "2006",
	"%H": "15", "%I": "03", "%M": "04", "%S": "05", "%p": "PM", "%z": "-0700", "%Z": "MST",
	"%D": "01/02/06", "%F": "2006-01-02", "%T": "15:04:05", "%R": "15:04", "%c": "Mon Jan _2 15:04:05 2006",
	"%-d": "2", "%-m": "1", "%-I": "3", "%-M": "4", "%-S": "5",
}

// strftime writes t as Python's datetime.strftime does.
func strftime(t time.Time, format string) (string, error) {
	var out strings.Builder
	for format != "" {
		plain, rest, found := strings.Cut(format, "%")
		out.WriteString(plain)
		if !found {
			break
		}
		n := 1
		if strings.HasPrefix(rest, "-") {
			n = 2
		}
		if len(rest) < n {
			return "", errors.New("strftime_now: the format ends within a directive")
		}
		directive := "%" + rest[:n]
		layout, ok := directives[directive]
		switch {
		case ok:
			out.WriteString(t.Format(layout))
		case directive == "%%":
			out.WriteByte('%')
		case directive == "%-H":
			fmt.Fprint(&out, t.Hour())
		default:
			return "", fmt.Errorf("strftime_now: %q is not a directive", directive)
		}
		format = rest[n:]
	}
	return out.String(), nil
}

// now is strftime_now(format): the local time, as in the library that most
// templates are written for.
func now(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
	format, ok := text(args.Args, 0)
	if !ok || len(format) > maxPathBytes {
		return fail(e, errors.New("strftime_now takes a short format"))
	}
	written, err := strftime(time.Now(), format)
	if err != nil {
		return fail(e, err)
	}
	return exec.AsValue(written)
}
