// Answers what Gazette's message package does: reads one JSON request per line, and writes one JSON response per line.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"

	"github.com/sirupsen/logrus"
	"go.gazette.dev/core/broker/protocol"
	"go.gazette.dev/core/labels"
	"go.gazette.dev/core/message"
)

// Sent is a message of a stream: the number of its producer, its clock, and its flags.
type Sent struct {
	Producer byte
	Clock    uint64
	Flags    uint16
}

// Request is either a stream for the sequencer, records to write as CSV, or CSV to read.
type Request struct {
	Stream  []Sent
	Records [][]string
	CSV     []byte
}

// State is the state of a producer.
type State struct {
	Producer byte
	LastAck  uint64
	Begin    int64
}

// Response has the numbers of the messages that each message of the stream commits, and the producers' states;
// or the bytes of the records; or the records, and the error after them.
type Response struct {
	Committed [][]int64
	States    []State
	CSV       []byte
	Records   [][]string
	Error     string
}

type text struct{ id message.UUID }

func (m *text) GetUUID() message.UUID                               { return m.id }
func (m *text) SetUUID(id message.UUID)                             { m.id = id }
func (m *text) NewAcknowledgement(protocol.Journal) message.Message { return new(text) }

// row is a message of any fields; CSVRecord demands a UUID.
type row []string

func (r row) MarshalCSV() ([]string, error) { return r, nil }
func (r *row) UnmarshalCSV(fields []string) error {
	*r = append(row{}, fields...)
	return nil
}

func sequence(stream []Sent) (committed [][]int64, states []State) {
	var journal = &protocol.JournalSpec{Name: "j"}
	var sequencer = message.NewSequencer(nil, nil, len(stream)+1)
	for number, sent := range stream {
		var producer = message.ProducerID{1, 0, 0, 0, 0, sent.Producer}
		var id = message.BuildUUID(producer, message.Clock(sent.Clock), message.Flags(sent.Flags))
		sequencer.QueueUncommitted(message.Envelope{
			Journal: journal, Begin: int64(number), End: int64(number) + 1, Message: &text{id},
		})
		var found = []int64{}
		for sequencer.Step() != io.EOF {
			if message.GetFlags(sequencer.Dequeued.GetUUID()) != message.Flag_ACK_TXN {
				found = append(found, sequencer.Dequeued.Begin)
			}
		}
		committed = append(committed, found)
	}
	var _, found = sequencer.Checkpoint(0)
	for _, state := range found {
		states = append(states, State{state.Producer[5], uint64(state.LastAck), state.Begin})
	}
	return
}

func write(framing message.Framing, records [][]string) []byte {
	var out bytes.Buffer
	var buffered = bufio.NewWriter(&out)
	for _, record := range records {
		if err := framing.Marshal((*row)(&record), buffered); err != nil {
			panic(err)
		}
	}
	buffered.Flush()
	return out.Bytes()
}

func read(framing message.Framing, data []byte) (records [][]string, failure string) {
	var next = framing.NewUnmarshalFunc(bufio.NewReader(bytes.NewReader(data)))
	for {
		var record row
		if err := next(&record); err == io.EOF {
			return
		} else if err != nil {
			return records, err.Error()
		}
		records = append(records, record)
	}
}

func main() {
	logrus.SetOutput(io.Discard)
	var framing, err = message.FramingByContentType(labels.ContentType_CSV)
	if err != nil {
		panic(err)
	}
	var in = json.NewDecoder(os.Stdin)
	var out = json.NewEncoder(os.Stdout)
	for {
		var request Request
		if err := in.Decode(&request); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		var response Response
		response.Committed, response.States = sequence(request.Stream)
		response.CSV = write(framing, request.Records)
		response.Records, response.Error = read(framing, request.CSV)
		if err := out.Encode(response); err != nil {
			panic(err)
		}
	}
}
