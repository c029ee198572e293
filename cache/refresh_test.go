package cache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

// TestAQuestionThatIsPopularInOtherWordsIsRefreshed asks it in its own words once.
func TestAQuestionThatIsPopularInOtherWordsIsRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{step: time.Millisecond}
		c := Through(m, tiers(t, Options{
			Store: newMapStore(), TTL: time.Minute, Jitter: -1, Semantic: &Semantic{Embedder: letters{}, Gate: sameNegation},
		}), Policy{Refresh: 0.1})
		defer c.Close()
		get := func(question string) string {
			got, err := haiku.NewStream(t.Context(), c, ask(question)).Text()
			require.NoError(t, err)
			return got
		}
		get("an old pond")
		for range 3 {
			<-time.After(55 * time.Second)
			for _, question := range []string{"pond old an", "old an pond"} {
				require.Equal(t, "an old pond ", get(question))
			}
		}
		synctest.Wait()
		require.Equal(t, int64(4), m.runs.Load(), "once each time")
		_, ok := c.tiers.Get(KeyOf(ask("an old pond"), ""))
		require.True(t, ok, "the question in whose words it is kept")
		_, ok = c.tiers.Get(KeyOf(ask("pond old an"), ""))
		require.False(t, ok)
	})
}

// TestRefreshesSpreadAndEndsDoNot asks for many answers that were computed at the
// same time, every second.
func TestRefreshesSpreadAndEndsDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 300
		m := &model{}
		ts := tiers(t, Options{Store: newMapStore(), TTL: 100 * time.Second})
		c := Through(m, ts, Policy{})
		defer c.Close()
		get := func(i int) {
			_, err := haiku.NewStream(t.Context(), c, ask(fmt.Sprint("pond ", i))).Text()
			require.NoError(t, err)
		}
		for i := range 2 * entries {
			get(i)
		}
		<-time.After(74 * time.Second)
		most, before := int64(0), m.runs.Load()
		for range 22 {
			for i := range entries { // the other half is not asked for
				get(i)
			}
			synctest.Wait()
			now := m.runs.Load()
			most, before = max(most, now-before), now
			<-time.After(time.Second)
		}
		require.Equal(t, int64(3*entries), m.runs.Load(), "each once, and nobody waited")
		require.Less(t, most, int64(entries/8), "between 75 and 95 s")
		for i := range 2 * entries {
			_, ok := ts.Get(KeyOf(ask(fmt.Sprint("pond ", i)), ""))
			require.True(t, ok, "nothing ends early")
		}
		<-time.After(4001 * time.Millisecond)
		_, ok := ts.Get(KeyOf(ask(fmt.Sprint("pond ", 2*entries-1)), ""))
		require.False(t, ok, "nor late")
	})
}
