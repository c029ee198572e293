package haiku_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/intelliparadigm/haiku"
)

var sentinels = []*haiku.Error{
	haiku.ErrInvalidRequest, haiku.ErrUnsupported, haiku.ErrContextLength, haiku.ErrUnauthenticated,
	haiku.ErrForbidden, haiku.ErrModelNotFound, haiku.ErrNotFound, haiku.ErrMethodNotAllowed,
	haiku.ErrBodyTooLarge, haiku.ErrRateLimited, haiku.ErrTooBusy, haiku.ErrOverloaded, haiku.ErrClosed, haiku.ErrTimeout,
	haiku.ErrSlowReader, haiku.ErrInternal, haiku.ErrCannotFlush,
}

func TestSentinelsMatchThemselvesAlone(t *testing.T) {
	for i, a := range sentinels {
		special := a.With("p", "about %d", i).Because(io.EOF)
		for j, b := range sentinels {
			require.Equal(t, i == j, errors.Is(fmt.Errorf("wrapped: %w", special), b), "%v and %v", a, b)
		}
		require.ErrorIs(t, special, io.EOF)
		require.NotErrorIs(t, a, io.EOF, "the sentinel is not changed")
		require.Empty(t, a.Param)
		require.NotEmpty(t, a.Message)
		require.GreaterOrEqual(t, a.Status, 400)
	}
	require.NotErrorIs(t, &haiku.Error{Status: 402}, &haiku.Error{Status: 418}, "no code is not the same code")
	require.NotErrorIs(t, haiku.ErrInternal, io.EOF)
}

func TestErrorText(t *testing.T) {
	require.EqualError(t, haiku.ErrTimeout, "haiku: the request took longer than its deadline")
	require.EqualError(t, haiku.ErrInvalidRequest.With("n", "must be %d", 1).Because(io.EOF), "haiku: must be 1 (n): EOF")
	require.EqualError(t, &haiku.PanicError{Value: 7}, "panic: 7")
}

func TestErrorFrom(t *testing.T) {
	limited := haiku.ErrRateLimited.With("", "slow down")
	var none *haiku.Error
	for _, tt := range []struct {
		err    error
		want   *haiku.Error
		status int
	}{
		{limited, limited, 429},
		{fmt.Errorf("queue: %w", limited), limited, 429},
		{errors.Join(io.EOF, limited), limited, 429},
		{context.DeadlineExceeded, haiku.ErrTimeout, 504},
		{fmt.Errorf("step: %w", context.Canceled), haiku.ErrorFrom(context.Canceled), 499},
		{&haiku.PanicError{Value: "v"}, haiku.ErrInternal, 500},
		{io.ErrUnexpectedEOF, haiku.ErrInternal, 500},
		{none, haiku.ErrInternal, 500},
		{fmt.Errorf("wrapped: %w", error(none)), haiku.ErrInternal, 500},
	} {
		got := haiku.ErrorFrom(tt.err)
		require.ErrorIs(t, got, tt.want)
		require.Equal(t, tt.status, got.Status)
		require.NotEmpty(t, got.Error())
		if tt.want != limited && tt.err != error(none) && tt.status != 500 {
			require.ErrorIs(t, got, tt.err, "the cause is kept")
		}
	}
	require.Nil(t, haiku.ErrorFrom(nil))
	require.ErrorIs(t, haiku.ErrorFrom(io.EOF), io.EOF)
}

func TestAppendError(t *testing.T) {
	for _, tt := range []struct {
		err  *haiku.Error
		want string
	}{
		{haiku.ErrInvalidRequest.With("messages[0].content", "wrong"),
			`{"error":{"message":"wrong","type":"invalid_request_error","param":"messages[0].content","code":"invalid_request"}}`},
		{&haiku.Error{Status: 402, Type: "billing", Message: "pay\n\"now\""},
			`{"error":{"message":"pay\n\"now\"","type":"billing","param":null,"code":null}}`},
		{haiku.ErrInternal.Because(errors.New("secret")), internalBody},
		{haiku.ErrInvalidRequest.With("", "<b>&'\xff\u2028é😀"),
			`{"error":{"message":"<b>&'` + "\uFFFD" + `\u2028é😀","type":"invalid_request_error","param":null,"code":"invalid_request"}}`},
		{&haiku.Error{}, `{"error":{"message":"","type":"","param":null,"code":null}}`},
	} {
		got := haiku.AppendError([]byte("before "), tt.err)
		require.Equal(t, "before "+tt.want, string(got))
		require.True(t, json.Valid(got[len("before "):]))
	}
}
