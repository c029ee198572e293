package redis_test

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	cacheredis "github.com/intelliparadigm/haiku/cache/redis"
)

// A replica stores an answer's parts together; another reads them, until the
// model gets a new version.
func Example() {
	options := cacheredis.ClientOptions("127.0.0.1:6379")
	options.Password = "from the host's configuration"
	client := goredis.NewUniversalClient(options)
	defer client.Close()
	store := cacheredis.New(client, cacheredis.Options{Prefix: "answers"})
	defer store.Close()

	ctx := context.Background()
	tags := []string{"model/7", "tenant/acme"}
	stored := store.SetAll(ctx, 1, []cacheredis.Entry{
		{Key: "output/5f2c", Value: []byte("an old silent pond"), TTL: time.Hour, Tags: tags},
		{Key: "vector/5f2c", Value: []byte{0, 1, 2}, TTL: time.Hour, Tags: tags},
	})
	parts := store.Get(ctx, "output/5f2c", "vector/5f2c")
	fmt.Println(stored, parts[0] != nil && parts[1] != nil)
	store.Invalidate(ctx, "model/7")
}
