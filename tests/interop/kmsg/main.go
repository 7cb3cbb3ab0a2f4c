// Answers what franz-go's kmsg package reads and writes.
//
// With the argument "list", it writes one line per class: "request KEY MAX_VERSION", "response KEY MAX_VERSION"
// or "other NAME". Without, it reads lines of four words, and writes one line for each, "ok HEX" or "error TEXT":
//
//	KIND WHICH VERSION HEX    decode, and encode again
//	KIND WHICH VERSION new    encode a new message
//
// KIND and WHICH are as listed. KIND "frame" encodes a request with its size and header: correlation id 0, client id "kmsg".
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

type message interface {
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

type versioned interface {
	message
	MaxVersion() int16
	SetVersion(int16)
}

// These have no key, and no version but the one in their bytes.
var others = map[string]func() message{
	"ConnectMemberAssignment":  func() message { var v = kmsg.NewConnectMemberAssignment(); return &v },
	"ConnectMemberMetadata":    func() message { var v = kmsg.NewConnectMemberMetadata(); return &v },
	"ConsumerMemberAssignment": func() message { var v = kmsg.NewConsumerMemberAssignment(); return &v },
	"ConsumerMemberMetadata":   func() message { var v = kmsg.NewConsumerMemberMetadata(); return &v },
	"ControlRecordKey":         func() message { var v = kmsg.NewControlRecordKey(); return &v },
	"DefaultPrincipalData":     func() message { var v = kmsg.NewDefaultPrincipalData(); return &v },
	"EndTxnMarker":             func() message { var v = kmsg.NewEndTxnMarker(); return &v },
	"GroupMetadataKey":         func() message { var v = kmsg.NewGroupMetadataKey(); return &v },
	"GroupMetadataValue":       func() message { var v = kmsg.NewGroupMetadataValue(); return &v },
	"Header":                   func() message { var v = kmsg.NewHeader(); return &v },
	"LeaderChangeMessage":      func() message { var v = kmsg.NewLeaderChangeMessage(); return &v },
	"MessageV0":                func() message { var v = kmsg.NewMessageV0(); return &v },
	"MessageV1":                func() message { var v = kmsg.NewMessageV1(); return &v },
	"OffsetCommitKey":          func() message { var v = kmsg.NewOffsetCommitKey(); return &v },
	"OffsetCommitValue":        func() message { var v = kmsg.NewOffsetCommitValue(); return &v },
	"Record":                   func() message { var v = kmsg.NewRecord(); return &v },
	"RecordBatch":              func() message { var v = kmsg.NewRecordBatch(); return &v },
	"StickyMemberMetadata":     func() message { var v = kmsg.NewStickyMemberMetadata(); return &v },
	"TxnMetadataKey":           func() message { var v = kmsg.NewTxnMetadataKey(); return &v },
	"TxnMetadataValue":         func() message { var v = kmsg.NewTxnMetadataValue(); return &v },
}

func list(out io.Writer) {
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if request := kmsg.RequestForKey(key); request != nil {
			fmt.Fprintln(out, "request", key, request.MaxVersion())
			fmt.Fprintln(out, "response", key, request.ResponseKind().MaxVersion())
		}
	}
	var names []string
	for name := range others {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintln(out, "other", name)
	}
}

func find(kind, which string, version int16) (message, error) {
	if kind == "other" {
		if create := others[which]; create != nil {
			return create(), nil
		}
		return nil, fmt.Errorf("no message %s", which)
	}
	var key, err = strconv.ParseInt(which, 10, 16)
	if err != nil {
		return nil, err
	}
	var request = kmsg.RequestForKey(int16(key))
	if request == nil {
		return nil, fmt.Errorf("no api key %d", key)
	}
	var found versioned = request
	if kind == "response" {
		found = request.ResponseKind()
	}
	if version > found.MaxVersion() {
		return nil, fmt.Errorf("%s %d has no version %d", kind, key, version)
	}
	found.SetVersion(version)
	return found, nil
}

func answer(line string) (again []byte, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	var words = strings.Split(line, " ")
	if len(words) != 4 {
		return nil, fmt.Errorf("%d words are not 4", len(words))
	}
	version, err := strconv.ParseInt(words[2], 10, 16)
	if err != nil {
		return nil, err
	}
	found, err := find(words[0], words[1], int16(version))
	if err != nil {
		return nil, err
	}
	if words[3] != "new" {
		data, err := hex.DecodeString(words[3])
		if err != nil {
			return nil, err
		}
		if err = found.ReadFrom(data); err != nil {
			return nil, err
		}
	}
	if words[0] == "frame" {
		var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("kmsg"))
		return formatter.AppendRequest(nil, found.(kmsg.Request), 0), nil
	}
	return found.AppendTo(nil), nil
}

func main() {
	var out = bufio.NewWriter(os.Stdout)
	defer out.Flush()
	if len(os.Args) > 1 && os.Args[1] == "list" {
		list(out)
		return
	}
	var in = bufio.NewReader(os.Stdin)
	for {
		var line, err = in.ReadString('\n')
		if err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		again, err := answer(strings.TrimSuffix(line, "\n"))
		if err != nil {
			fmt.Fprintln(out, "error", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Fprintln(out, "ok", hex.EncodeToString(again))
		}
	}
}
