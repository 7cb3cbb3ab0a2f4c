// Reads topic `in` in group `g` and writes to `out` in transactions, with franz-go: `main SERVERS PROTOCOL COUNT` ends
// after COUNT records. PROTOCOL is that of the group.
package main

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	left, err := strconv.Atoi(os.Args[3])
	must(err)
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Args[1]),
		kgo.TransactionalID("franz"),
		kgo.ConsumerGroup("g"),
		kgo.ConsumeTopics("in"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	}
	if os.Args[2] == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	must(err)
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for left > 0 {
		fetches := session.PollFetches(ctx)
		must(fetches.Err())
		must(session.Begin())
		fetches.EachRecord(func(record *kgo.Record) {
			left--
			session.Produce(ctx, &kgo.Record{Topic: "out", Value: bytes.ToUpper(record.Value)}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		must(err)
		if !committed {
			panic("aborted")
		}
	}
}
