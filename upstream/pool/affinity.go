package pool

import (
	"github.com/intelliparadigm/haiku"
	"github.com/intelliparadigm/haiku/internal/splitmix"
)

// What Options.AffinityBytes means by 0.
const (
	openingBytes = 16 << 10
	plainBytes   = 1 << 10
)

// affinityOf is a hash of who asks for what and of how the prompt begins, the same
// in every process. 0 is none. Of a conversation it is the opening that counts,
// which ends with the first message of the user's: a later turn of it has the
// same one. Turns of a plain prompt cannot be told apart, so that only what is
// surely there in its first turn counts, a little.
func affinityOf(req *haiku.Request, most int) uint64 {
	if most < 0 {
		return 0
	}
	h := digest(1)
	add(&h, req.Tenant)
	add(&h, req.Model)
	opening, plain := most, most
	if most == 0 {
		opening, plain = openingBytes, plainBytes
	}
	for i := range req.Messages {
		m := &req.Messages[i]
		add(&h, m.Role)
		addSome(&h, m.Content, &opening)
		for j := range m.Extensions {
			if m.Extensions[j].Name == "content" { // parts that are not all text
				addSome(&h, m.Extensions[j].Value, &opening)
			}
		}
		if m.Role == haiku.RoleUser || opening == 0 {
			break
		}
	}
	addSome(&h, req.Prompt, &plain)
	for _, id := range req.PromptTokens[:min(len(req.PromptTokens), plain/4)] {
		h.mix(uint64(uint32(id)))
	}
	return uint64(h) | 1
}

// digest is a hash under way.
type digest uint64

func (d *digest) mix(x uint64) { *d = digest(splitmix.Mix(uint64(*d) ^ x)) }

// add takes in a text and where it ends.
func add[T ~string | ~[]byte](d *digest, s T) {
	n := len(s)
	for ; len(s) >= 8; s = s[8:] {
		d.mix(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
	}
	var rest uint64
	for i := range len(s) {
		rest |= uint64(s[i]) << (8 * i)
	}
	d.mix(rest)
	d.mix(uint64(n))
}

// addSome takes in as much of a text as is left to take.
func addSome[T ~string | ~[]byte](d *digest, s T, left *int) {
	s = s[:min(len(s), *left)]
	*left -= len(s)
	add(d, s)
}
