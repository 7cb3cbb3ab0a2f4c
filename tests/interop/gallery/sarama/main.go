// Sends one record with an asynchronous producer, closes it, and prints what became of the record:
// `main HOST:PORT TOPIC`.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Net.ReadTimeout = 500 * time.Millisecond
	config.Producer.Timeout = 500 * time.Millisecond
	config.Producer.Retry.Max = 1
	config.Producer.Return.Successes = true
	producer, err := sarama.NewAsyncProducer([]string{os.Args[1]}, config)
	if err != nil {
		panic(err)
	}
	producer.Input() <- &sarama.ProducerMessage{Topic: os.Args[2], Value: sarama.StringEncoder("one")}
	producer.AsyncClose()
	go func() {
		for range producer.Successes() {
			fmt.Println("stored")
		}
	}()
	for failed := range producer.Errors() {
		fmt.Println("failed:", failed.Err)
	}
	fmt.Println("closed")
}
