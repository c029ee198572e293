package redis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/intelliparadigm/haiku/fallback"
	fallbackredis "github.com/intelliparadigm/haiku/fallback/redis"
)

// A replica adds what it saw of a model since it last asked, and hears what all
// saw in the last half minute.
func Example() {
	options := fallbackredis.ClientOptions("127.0.0.1:6379")
	options.Password = "from the host's configuration"
	client := goredis.NewUniversalClient(options)
	defer client.Close()
	counters, err := fallbackredis.New(client, fallbackredis.Options{Prefix: "production"})
	if err != nil {
		log.Fatal(err)
	}
	all, err := counters.Exchange(context.Background(), "llama-70b", fallback.Counts{OK: 41, Slow: 2}, 30*time.Second)
	if err != nil {
		log.Print(err) // judge alone
		return
	}
	fmt.Println(all.OK, all.Slow, all.Failed)
}
