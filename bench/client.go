//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// load is what a client process is asked to do: conns connections, each with
// requests one after the other.
type load struct {
	URL      string
	Body     string // empty for GET
	Conns    int
	Requests int // per connection
}

// loadResult is what it reports.
type loadResult struct {
	Seconds float64
	Bytes   int64
	Events  int64 // occurrences of "data: "
	// FirstMicros is the median time from a request to the first byte of its
	// answer's body.
	FirstMicros float64
	first       []float64
}

// drive runs l in a process of its own and waits for it.
func drive(l load) (loadResult, error) { return apart[loadResult]("-load", l) }

// apart has a task done by a process of its own, which is this program under a
// flag of clientMain, and waits for what comes of it.
func apart[R any](flag string, task any) (r R, err error) {
	in, err := json.Marshal(task)
	if err != nil {
		return r, err
	}
	cmd := exec.Command(os.Args[0], "client", flag, string(in))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("client: %w", err)
	}
	return r, json.Unmarshal(out, &r)
}

// taskMain is that process: it reads a task, and prints what comes of it.
func taskMain[T any, R any](text string, run func(T) (R, error)) error {
	var task T
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return err
	}
	r, err := run(task)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (l load) run() (loadResult, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.Conns, DisableCompression: true}}
	defer client.CloseIdleConnections()
	results := make([]loadResult, l.Conns)
	errs := make([]error, l.Conns)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range l.Conns {
		wg.Go(func() {
			for range l.Requests {
				if errs[i] = l.one(client, &results[i]); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	total := loadResult{Seconds: time.Since(start).Seconds()}
	for i, r := range results {
		if errs[i] != nil {
			return total, errs[i]
		}
		total.Bytes += r.Bytes
		total.Events += r.Events
		total.first = append(total.first, r.first...)
	}
	total.FirstMicros = median(total.first)
	return total, nil
}

func (l load) one(client *http.Client, r *loadResult) error {
	method, body := http.MethodGet, io.Reader(nil)
	if l.Body != "" {
		method, body = http.MethodPost, strings.NewReader(l.Body)
	}
	req, err := http.NewRequest(method, l.URL, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	began, first := time.Now(), true
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s %s", l.URL, resp.Status, text)
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if first && n > 0 {
			first = false
			r.first = append(r.first, float64(time.Since(began).Microseconds()))
		}
		r.Bytes += int64(n)
		r.Events += int64(strings.Count(string(buf[:n]), "data: "))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
