//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// fault is a way in which an engine is sick. The zero value is health.
type fault struct {
	Name   string
	Killed bool // the process is gone
	Gone   bool // the machine is: connections stay and nothing comes over them
	Status int  // what every request is answered with, 0 for a stream
	Late   bool // headers come with the first token and not before it
	First  time.Duration
	At     int  // the token from which on Deed is done, also to streams that run
	Deed   deed // empty for none
}

// deed is what a sick engine does to a stream.
type deed string

const (
	stall deed = "stall" // nothing more is sent, the connection stays
	event deed = "event" // an error event in place of the rest
	cut   deed = "cut"   // the connection is closed
)

// chaosScript is what a scripted engine of the chaos table is like.
type chaosScript struct {
	Address string // to listen at, empty for a free port
	Model   string
	First   time.Duration // from a request to the first token
	Pace    time.Duration // from a token to the next
	Tokens  int
}

// chaosEngine streams numbered tokens that name the model and the request, until
// it is told to be sick.
type chaosEngine struct {
	chaosScript
	sick atomic.Pointer[fault]
}

func newChaosEngine(s chaosScript) *chaosEngine {
	e := &chaosEngine{chaosScript: s}
	e.sick.Store(&fault{})
	return e
}

func (e *chaosEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, err := askedFor(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	f, flusher := e.sick.Load(), http.NewResponseController(w)
	if f.Status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, chaosError)
		return
	}
	if !f.Late { // the stream is open before there is a token
		_ = flusher.Flush()
	}
	for i := range e.Tokens {
		wait := e.Pace
		if i == 0 {
			wait = e.First + f.First
		}
		if pause(r.Context(), wait) != nil || !e.spare(w, r, i) {
			return
		}
		_, _ = fmt.Fprintf(w, chaosFrame, e.Model, e.Model, id, i)
		_ = flusher.Flush()
	}
	_, _ = fmt.Fprintf(w, chaosEnd, e.Model)
}

// spare does to a stream what is to be done before token i, and reports whether it
// goes on.
func (e *chaosEngine) spare(w http.ResponseWriter, r *http.Request, i int) bool {
	f := e.sick.Load()
	if f.Deed == "" || i < f.At {
		return true
	}
	switch f.Deed {
	case stall:
		<-r.Context().Done()
	case event:
		_, _ = io.WriteString(w, "data: "+chaosError+"\n\n")
	case cut:
		panic(http.ErrAbortHandler)
	}
	return false
}

const (
	chaosFrame = `data: {"id":"x","object":"chat.completion.chunk","created":1764592000,"model":"%s","choices":[{"index":0,"delta":{"content":"%s:%d:%d "},"finish_reason":null}]}` + "\n\n"
	chaosEnd   = `data: {"id":"x","object":"chat.completion.chunk","created":1764592000,"model":"%s","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	chaosError = `{"error":{"message":"the engine is sick","type":"server_error","code":"sick"}}`
	chaosAsk   = `{"model":"main","stream":true,"messages":[{"role":"user","content":"%d"}]}`
)

// askedFor reads the number of a request.
func askedFor(body io.Reader) (id int, err error) {
	var ask struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(body).Decode(&ask); err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, body)
	if len(ask.Messages) != 1 {
		return 0, errors.New("not one message")
	}
	return strconv.Atoi(ask.Messages[0].Content)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// chaosProcess is a scripted engine in a process of its own.
type chaosProcess struct {
	script chaosScript
	cmd    *exec.Cmd
	tell   io.WriteCloser // a fault a line; the process ends when it is closed
	heard  *bufio.Reader
}

// start runs the process, at the address that it had before if it had one.
func (p *chaosProcess) start() error {
	in, err := json.Marshal(p.script)
	if err != nil {
		return err
	}
	p.cmd = exec.Command(os.Args[0], "client", "-chaos-engine", string(in))
	p.cmd.Stderr = os.Stderr
	if p.tell, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.heard = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return err
	}
	line, err := p.heard.ReadString('\n')
	if err != nil {
		p.stop()
		return fmt.Errorf("engine %s: %w", p.script.Model, err)
	}
	p.script.Address = strings.TrimSpace(line)
	return nil
}

func (p *chaosProcess) url() string { return "http://" + p.script.Address }

// be makes it sick or healthy, and returns when it is.
func (p *chaosProcess) be(f fault) error {
	if f.Killed {
		err := p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
		return err
	}
	if p.cmd == nil {
		return p.start()
	}
	if err := json.NewEncoder(p.tell).Encode(f); err != nil {
		return err
	}
	_, err := p.heard.ReadString('\n')
	return err
}

func (p *chaosProcess) stop() {
	if p.cmd != nil {
		_ = p.tell.Close()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// chaosEngineMain is that process.
func chaosEngineMain(text string) error {
	var script chaosScript
	if err := json.Unmarshal([]byte(text), &script); err != nil {
		return err
	}
	listener, err := listenAgain(script.Address)
	if err != nil {
		return err
	}
	engine, front := newChaosEngine(script), newDoor(listener)
	server := &http.Server{Handler: engine}
	go func() {
		faults := json.NewDecoder(os.Stdin)
		for {
			var f fault
			if faults.Decode(&f) != nil {
				break
			}
			engine.sick.Store(&f)
			front.shut(f.Gone)
			fmt.Println("so it is")
		}
		_ = server.Close()
	}()
	fmt.Println(listener.Addr())
	_ = server.Serve(front)
	return nil
}

// listenAgain listens where another process may just have been killed.
func listenAgain(address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	for try := 0; ; try++ {
		l, err := net.Listen("tcp", address)
		if err == nil || try == 100 || !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
