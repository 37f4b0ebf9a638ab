package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

// The client that signs people in, and where the library's own list of native clients sends them back to.
const (
	client   = "kubectl"
	callback = "http://localhost/auth/callback"
)

// person is somebody who may sign in.
type person struct {
	storage.User
	Groups []string
}

// people are found by what they sign in with, and by their ID, which is the claim `sub`.
type people []*person

func (p people) GetUserByID(id string) *storage.User {
	if found := p.find(id); found != nil {
		return &found.User
	}
	return nil
}

func (p people) GetUserByUsername(name string) *storage.User {
	for _, person := range p {
		if person.Username == name {
			return &person.User
		}
	}
	return nil
}

// ExampleClientID is asked for by the library's own storage; no service signs in here.
func (p people) ExampleClientID() string { return "" }

func (p people) find(id string) *person {
	for _, person := range p {
		if person.ID == id {
			return person
		}
	}
	return nil
}

func serve(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	file := flags.String("people", "", "a JSON list of people, with ID, Username, Password, Email and Groups")
	certificate := flags.String("certificate", "", "the serving certificate, PEM")
	key := flags.String("key", "", "its key, PEM")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	var known people
	if err := json.Unmarshal(text, &known); err != nil {
		return fmt.Errorf("%s: %w", *file, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := fmt.Sprintf("https://%s", listener.Addr())
	clients := map[string]*storage.Client{client: storage.NativeClient(client, callback)}
	store, err := newStore(known, storage.NewStorageWithClients(known, clients))
	if err != nil {
		return err
	}
	// Each request would be a line.
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	routes := http.NewServeMux()
	routes.Handle("/", exampleop.SetupServer(issuer, store, quiet, false))
	routes.HandleFunc("POST /rotate", func(writer http.ResponseWriter, _ *http.Request) {
		if err := store.rotate(); err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
		}
	})
	fmt.Println(issuer)
	return http.ServeTLS(listener, routes, *certificate, *key)
}
