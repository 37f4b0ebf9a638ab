package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"sync"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// store is the library's storage in memory, with people's groups and with keys that change.
type store struct {
	*storage.Storage
	people people

	mutex sync.Mutex
	made  int
	key   *rsa.PrivateKey
}

func newStore(known people, inner *storage.Storage) (*store, error) {
	made := &store{Storage: inner, people: known}
	return made, made.rotate()
}

// rotate makes another key; the one before is served no longer.
func (s *store) rotate() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.made++
	s.key = key
	return nil
}

func (s *store) current() signingKey {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return signingKey{id: fmt.Sprintf("key-%d", s.made), key: s.key}
}

func (s *store) SigningKey(context.Context) (op.SigningKey, error) { return s.current(), nil }

func (s *store) KeySet(context.Context) ([]op.Key, error) {
	return []op.Key{publicKey{s.current()}}, nil
}

// SetUserinfoFromRequest says what is in the token of somebody: their email address and groups.
func (s *store) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, token op.IDTokenRequest, _ []string) error {
	person := s.people.find(token.GetSubject())
	if person == nil {
		return fmt.Errorf("nobody has the ID %q", token.GetSubject())
	}
	info.Subject, info.Email, info.EmailVerified = person.ID, person.Email, oidc.Bool(person.EmailVerified)
	info.AppendClaims("groups", person.Groups)
	return nil
}

type signingKey struct {
	id  string
	key *rsa.PrivateKey
}

func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k signingKey) Key() any                                    { return k.key }
func (k signingKey) ID() string                                  { return k.id }

type publicKey struct{ signingKey }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return &k.key.PublicKey }
