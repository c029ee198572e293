package infer

// demand is what the plan needs to know of one running sequence.
type demand struct {
	// tokens is how many the sequence could compute now: 1 in decode, what is
	// left of the prompt in prefill, 0 while it is paused.
	tokens int
	// decoding is true once the sequence has produced its first token.
	decoding bool
}

// plan decides how many tokens of each running sequence the next step carries:
// shares[i] of demands[i], together at most budget. It is a pure function.
//
// Decodes come first, one token each, since someone reads along. What is left
// of the budget is shared evenly among the prompts, so that a long one neither
// blocks short ones behind it nor starves; a share that a short prompt does
// not use goes to the others. The engine keeps the budget at twice the number
// of sequences or more, so that there is always something left for prompts.
func plan(shares []int, demands []demand, budget int) []int {
	shares = shares[:0]
	prompts := 0
	for _, d := range demands {
		share := 0
		if d.decoding && d.tokens > 0 && budget > 0 {
			share = 1
			budget--
		} else if d.tokens > 0 && !d.decoding {
			prompts++
		}
		shares = append(shares, share)
	}
	for prompts > 0 && budget > 0 {
		even := max(budget/prompts, 1)
		prompts = 0
		for i, d := range demands {
			if d.decoding || budget == 0 {
				continue
			}
			more := min(d.tokens-shares[i], even, budget)
			shares[i] += more
			budget -= more
			if d.tokens > shares[i] {
				prompts++
			}
		}
	}
	return shares
}
