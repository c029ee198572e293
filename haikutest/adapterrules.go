package haikutest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/intelliparadigm/haiku/infer"
)

// TestAdapters runs the contract of infer.AdapterExecutor as a test, with a
// subtest for each rule. open is as for [TestExecutor]; files are at least two
// adapters that fit the model and differ from it and from each other.
func TestAdapters(t *testing.T, open func(t *testing.T) infer.Executor, files ...*infer.AdapterFile) {
	t.Helper()
	for _, check := range adapterChecks(files) {
		t.Run(check.rule, func(t *testing.T) {
			if err := check.on(open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// CheckAdapters returns what is wrong with the executors that open makes, as
// TestAdapters would report it, and nil for good ones.
func CheckAdapters(open func() (infer.Executor, error), files ...*infer.AdapterFile) error {
	var all []error
	for _, check := range adapterChecks(files) {
		exec, err := open()
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		if err := check.on(exec); err != nil {
			all = append(all, fmt.Errorf("%s: %w", check.rule, err))
		}
	}
	return errors.Join(all...)
}

// adapterRun is one check on one executor that has loaded the files as 1, 2, …
type adapterRun struct {
	*executorRun
	exec  infer.AdapterExecutor
	files []*infer.AdapterFile
}

func adapterChecks(files []*infer.AdapterFile) []executorCheck {
	var checks []executorCheck
	for _, rule := range []struct {
		name string
		run  func(*adapterRun) error
	}{
		{"each sequence has its own adapter, whatever the others have", (*adapterRun).together},
		{"a scale of 0 is the base model", (*adapterRun).scaleZero},
		{"an adapter that is not loaded fails its item alone", (*adapterRun).unknown},
		{"an unloaded adapter's id can be used again", (*adapterRun).again},
	} {
		checks = append(checks, executorCheck{rule.name, func(r *executorRun) error {
			exec, able := r.exec.(infer.AdapterExecutor)
			if !able || len(files) < 2 {
				return errors.New("it is no infer.AdapterExecutor, or there are fewer than two adapters to try")
			}
			a := &adapterRun{r, exec, files}
			for i, file := range files {
				if err := exec.LoadAdapter(context.Background(), infer.AdapterID(i+1), file); err != nil {
					return fmt.Errorf("load adapter %d: %w", i+1, err)
				}
			}
			return rule.run(a)
		}})
	}
	return checks
}

// adapted returns an item with an adapter at its full scale.
func (r *adapterRun) adapted(tokens []int32, table int, id infer.AdapterID) infer.Item {
	it := r.item(r.sequence(), 0, tokens, r.table(table))
	it.Adapter, it.AdapterScale = id, 1
	return it
}

// alone computes tokens with an adapter and nothing beside them.
func (r *adapterRun) alone(tokens []int32, id infer.AdapterID) ([]float32, error) {
	it := r.adapted(tokens, 0, id)
	err := r.step(it)
	r.exec.Release(it.Seq)
	return it.Logits, err
}

func (r *adapterRun) together() error {
	tokens := r.prompt(suiteStep/suiteSequences, 1)
	var want [][]float32
	for id := range infer.AdapterID(3) {
		logits, err := r.alone(tokens, id)
		if err != nil {
			return err
		}
		for other, others := range want {
			if slices.Equal(others, logits) {
				return fmt.Errorf("adapters %d and %d give the same logits", other, id)
			}
		}
		want = append(want, logits)
	}
	var items []infer.Item
	ids := []infer.AdapterID{2, 0, 1, 0}
	for i, id := range ids {
		items = append(items, r.adapted(tokens, i, id))
	}
	if err := r.step(items...); err != nil {
		return err
	}
	for i, id := range ids {
		if err := same(want[id], items[i].Logits); err != nil {
			return fmt.Errorf("item %d with adapter %d: %w", i, id, err)
		}
	}
	return nil
}

func (r *adapterRun) scaleZero() error {
	tokens := r.prompt(9, 2)
	want, err := r.alone(tokens, 0)
	if err != nil {
		return err
	}
	it := r.adapted(tokens, 1, 1)
	it.AdapterScale = 0
	return r.stepWants(want, it)
}

func (r *adapterRun) unknown() error {
	tokens := r.prompt(9, 3)
	want, err := r.alone(tokens, 1)
	if err != nil {
		return err
	}
	b := infer.Batch{Items: []infer.Item{r.adapted(tokens, 0, 99), r.adapted(tokens, 1, 1)}}
	if err := r.exec.Step(context.Background(), &b); err != nil {
		return fmt.Errorf("the whole step failed: %w", err)
	}
	if b.Items[0].Err == nil || b.Items[1].Err != nil {
		return fmt.Errorf("errors %v and %v, want one and none", b.Items[0].Err, b.Items[1].Err)
	}
	return same(want, b.Items[1].Logits)
}

func (r *adapterRun) again() error {
	tokens := r.prompt(9, 4)
	want, err := r.alone(tokens, 2)
	if err != nil {
		return err
	}
	r.exec.UnloadAdapter(77) // does nothing
	r.exec.UnloadAdapter(1)
	b := infer.Batch{Items: []infer.Item{r.adapted(tokens, 0, 1)}}
	if err := r.exec.Step(context.Background(), &b); err != nil || b.Items[0].Err == nil {
		return fmt.Errorf("a step with an unloaded adapter: step error %v, item error %v", err, b.Items[0].Err)
	}
	if err := r.exec.LoadAdapter(context.Background(), 1, r.files[1]); err != nil {
		return fmt.Errorf("load it again: %w", err)
	}
	return r.stepWants(want, r.adapted(tokens, 1, 1))
}
