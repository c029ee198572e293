//go:build unix

package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the second process of the tables that need one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "client" {
		main()
	}
	goleak.VerifyTestMain(m)
}
