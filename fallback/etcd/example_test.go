package etcd_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/intelliparadigm/haiku/fallback"
	"github.com/intelliparadigm/haiku/fallback/etcd"
)

// A replica follows what the cluster has decided about a model.
func Example() {
	client, err := clientv3.New(etcd.ClientConfig("127.0.0.1:2379"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	shared := etcd.New(client, etcd.Options{Prefix: "production"})

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for setting, err := range shared.Watch(ctx, "llama-70b") {
		if err != nil {
			log.Print(err) // judge alone, and watch again after a while
			return
		}
		fmt.Println(setting.State == fallback.Open, setting.Remaining, setting.Reason)
	}
}
