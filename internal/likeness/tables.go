package likeness

import (
	"slices"
	"strings"
)

// table maps each word of lines "canonical: word word …" to its canonical form.
func table(lines string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(lines) {
		canonical, words, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, w := range strings.Fields(words) {
			m[w] = canonical
		}
	}
	return m
}

// set is the set of words in a text.
func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// light words carry no content of their own.
var light = set(`a an the this that these those there here
	is are was were be been being am do does did doing have has had having will would shall can could may might
	i you he she it we they me him us them my your his its our their her mine yours myself yourself
	to of in on at for with from into onto about as than then so if and or but also too up out over under
	above below before after during off down until since between among per each
	please kindly just exactly really actually very ever currently current thanks thank hi hello ok okay
	what which who whom whose when where why how not no never without neither nor none nobody nothing nowhere cannot`)

// articles begin a group of words, or go on with it.
var articles = set("a an the this that these those my your his its our their her")

// synonyms even out words that ask for the same, inflections that a rule would
// miss, and spellings.
var synonyms = table(`show: give display
	begin: start began begun
	delete: remove erase
	big: large
	bigger: larger
	biggest: largest
	near: close nearby
	nearest: closest
	write: wrote written
	pay: paid
	win: won
	buy: bought
	eat: ate eaten
	steal: stole stolen
	go: went gone goes
	make: made
	give: gave given
	take: took taken
	see: saw seen
	know: knew known
	get: got gotten
	send: sent
	build: built
	run: ran
	person: people persons
	child: children
	man: men
	woman: women
	mouse: mice
	foot: feet
	color: colour
	center: centre
	favorite: favourite
	summarize: summarise
	organize: organise
	optimize: optimise
	analyze: analyse
	behavior: behaviour
	license: licence
	gray: grey
	shop: store
	fix: repair
	error: errors
	enable: activate
	disable: deactivate
	increase: raise
	decrease: reduce lower
	picture: photo photograph image
	movie: film
	car: automobile
	quick: fast rapid
	calculate: compute
	benefit: advantage
	drawback: disadvantage`)

// units follow numbers. Their forms are one.
var units = table(`km: kilometer kilometre
	m: meter metre
	cm: centimeter centimetre
	mm: millimeter millimetre
	mi: mile
	ft: foot feet
	in: inch inches
	kg: kilogram kilo kilogramme
	g: gram gramme
	lb: pound lbs
	oz: ounce
	l: liter litre
	ml: milliliter millilitre
	s: second sec secs
	min: minute mins
	h: hour hr hrs
	ms: millisecond
	%: percent
	$: dollar usd
	€: euro eur
	£: gbp
	¥: yen jpy
	kb: kilobyte
	mb: megabyte
	gb: gigabyte
	tb: terabyte
	°c: celsius centigrade
	°f: fahrenheit
	month: mo
	year: yr yrs`)

var months = table(`month1: january jan
	month2: february feb
	month3: march mar
	month4: april apr
	month5: may
	month6: june jun
	month7: july jul
	month8: august aug
	month9: september sep sept
	month10: october oct
	month11: november nov
	month12: december dec`)

// opposites are pairs of sides. Words that are written together in one side
// count as one.
var opposites = pairs(`increase|decrease shrink|grow enable|disable allow|block,forbid,deny,prohibit,forbidden
	more|less,fewer most|least first|last open|close include|exclude add|subtract create|delete,destroy
	begin|end,finish,stop win|lose,lost buy|sell,sold accept|reject,refuse safe|unsafe,dangerous
	big|small,little bigger|smaller biggest|smallest tall|short fast,quick|slow faster,quicker|slower
	fastest|slowest high|low higher|lower highest|lowest old|new,young older|newer,younger oldest|newest,youngest
	hot|cold hotter|colder good|bad better|worse best|worst benefit|drawback
	minimum,min|maximum,max import|export encode|decode encrypt|decrypt install|uninstall upgrade|downgrade
	upload|download connect|disconnect lock|unlock push|pull read|write insert|extract push|pop
	dark|light,bright internal|external public|private even|odd positive|negative true|false always|rarely,seldom,hardly
	near|far nearest|farthest,furthest yesterday|tomorrow today|yesterday north|south east|west left|right
	legal|illegal possible|impossible similar,similarity|different,difference ascending|descending cooked|raw
	freeze,freezing|boil,boiling polite,politely|rude,rudely cause|prevent keep|reset,discard merge|split compare|convert
	send|receive teach|learn give|take arrive|depart male|female rich|poor early|late earlier|later
	past|future attack|defend expand|collapse show|hide love|hate strong|weak full|empty
	same|different deep|shallow wet|dry hard|soft easy|difficult married|divorced dead,die|born,birth
	former|current mean|median import|remove`)

// prepositions are opposites that texts may leave out: they conflict where both
// have one, and not the same.
var prepositions = pairs(`before|after|during over,above|under,below on|off up|down from|to,into inside|outside
	until|since my|your|his|her|their|our be|do for|against`)

// persons conflict likewise, but not in a question of how: whoever asks, the way
// is the same.
var persons = pairs(`i,me,we,us|you|he,him|she|they,them`)

// pairs numbers the sides of each group.
func pairs(groups string) map[string][]uint8 {
	m := map[string][]uint8{}
	side := uint8(0)
	for _, group := range strings.Fields(groups) {
		for words := range strings.SplitSeq(group, "|") {
			for w := range strings.SplitSeq(words, ",") {
				m[w] = append(m[w], side)
				if c := canonical(w); c != w && !slices.Contains(m[c], side) {
					m[c] = append(m[c], side)
				}
			}
			side++
		}
	}
	return m
}

// common are words with which a sentence may begin without being names.
var common = set(`list find open send write add compare convert translate explain describe remind summarize summarise
	tell show give calculate compose rewrite install name compute define create make build draw help hide close delete remove
	sort turn set get use run play start stop call buy sell book order search look best worst weather some all any every most
	many much more less one two three four five six seven eight nine ten dogs cats people men women man woman
	if when while since because although after before during in on at for with from by about under over and or but so
	yes no not never let need want should must today tomorrow yesterday generate provide suggest recommend
	check fix solve save read update upgrade plan prepare review analyze design implement improve`)
