// Package likeness decides whether two prompts ask for the same answer, beyond
// how near their embeddings are.
//
// The one idea: nearness is a weak witness. "Enable it" and "disable it" are
// neighbours in every embedding, so a cache needs a second opinion. It gets two
// of them here, which stand alone or together: gates compare what the texts
// state ([Of], [Same], [SameFacts]), and a budget learns from checked answers
// how far each entry may be trusted ([Budget]). [Lexical] makes vectors where no
// model is at hand.
//
// The gates refuse when in doubt: a false refusal costs one generation, a false
// pass a wrong answer. They know English; of other languages they compare
// numbers, quotations, code and the words as they stand.
package likeness
