// Sets, reads and removes quotas with Sarama and with franz-go, and prints what each of them reads.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func show(who string, lines []string) {
	sort.Strings(lines)
	fmt.Printf("%s: %s\n", who, strings.Join(lines, "; "))
}

func withSarama(address string) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	admin, err := sarama.NewClusterAdmin([]string{address}, config)
	must(err)
	defer admin.Close()
	read := func(strict bool, filters ...sarama.QuotaFilterComponent) {
		entries, err := admin.DescribeClientQuotas(filters, strict)
		must(err)
		lines := []string{}
		for _, entry := range entries {
			parts := []string{}
			for _, part := range entry.Entity {
				name := part.Name
				if part.MatchType == sarama.QuotaMatchDefault {
					name = "<default>"
				}
				parts = append(parts, fmt.Sprintf("%s=%s", part.EntityType, name))
			}
			lines = append(lines, fmt.Sprintf("%s %v", strings.Join(parts, ","), entry.Values))
		}
		show("sarama", lines)
	}
	anyone := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchDefault}}
	user := sarama.QuotaEntityComponent{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: "sarama"}
	client := sarama.QuotaEntityComponent{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: "app"}
	both := []sarama.QuotaEntityComponent{user, client}
	one := func(key string, value float64, remove bool) sarama.ClientQuotasOp {
		return sarama.ClientQuotasOp{Key: key, Value: value, Remove: remove}
	}
	read(false)
	must(admin.AlterClientQuotas(anyone, one("producer_byte_rate", 1024000, false), true))
	read(false)
	must(admin.AlterClientQuotas(anyone, one("producer_byte_rate", 1024000, false), false))
	must(admin.AlterClientQuotas(both, one("consumer_byte_rate", 2048000, false), false))
	read(false)
	read(true, sarama.QuotaFilterComponent{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchDefault})
	read(false, sarama.QuotaFilterComponent{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Match: "sarama"})
	must(admin.AlterClientQuotas(anyone, one("producer_byte_rate", 0, true), false))
	must(admin.AlterClientQuotas(both, one("consumer_byte_rate", 0, true), false))
	read(false)
	if err := admin.AlterClientQuotas(both, one("speed", 1, false), false); err != nil {
		fmt.Println("sarama refused:", err)
	}
}

func withFranz(address string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	must(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx := context.Background()
	read := func(components ...kadm.DescribeClientQuotaComponent) {
		found, err := admin.DescribeClientQuotas(ctx, false, components)
		must(err)
		lines := []string{}
		for _, each := range found {
			values := []string{}
			for _, value := range each.Values {
				values = append(values, fmt.Sprintf("%s=%v", value.Key, value.Value))
			}
			sort.Strings(values)
			lines = append(lines, fmt.Sprintf("%s %v", each.Entity, values))
		}
		show("kadm", lines)
	}
	name := "franz"
	entity := kadm.ClientQuotaEntity{{Type: "user", Name: &name}, {Type: "client-id", Name: nil}}
	alter := func(ops ...kadm.AlterClientQuotaOp) {
		results, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: ops}})
		must(err)
		for _, each := range results {
			if each.Err != nil {
				fmt.Println("kadm refused:", each.ErrMessage)
			}
		}
	}
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 1000}, kadm.AlterClientQuotaOp{Key: "request_percentage", Value: 12.5})
	read(kadm.DescribeClientQuotaComponent{Type: "user", MatchType: kmsg.QuotasMatchTypeAny})
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: -1})
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true}, kadm.AlterClientQuotaOp{Key: "request_percentage", Remove: true})
	read()
	versions, err := admin.ApiVersions(ctx)
	must(err)
	versions.Each(func(each kadm.BrokerApiVersions) {
		fmt.Println("version:", each.VersionGuess())
	})
}

func main() {
	withSarama(os.Args[1])
	withFranz(os.Args[1])
}
