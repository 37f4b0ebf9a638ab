// An OpenID Connect issuer and a client of it, both of a library that the OpenID Foundation has certified:
//
//	issuer serve --people FILE --certificate FILE --key FILE     serves until it is killed; prints its URL
//	issuer sign-in --issuer URL --authority FILE --name NAME --password PASSWORD
//	                                                             prints an ExecCredential for kubectl
//
// POST /rotate at the issuer makes another signing key and withdraws the one before.
package main

import (
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("issuer: say serve or sign-in")
	}
	commands := map[string]func([]string) error{"serve": serve, "sign-in": signIn}
	command, known := commands[os.Args[1]]
	if !known {
		log.Fatalf("issuer: no command %q: say serve or sign-in", os.Args[1])
	}
	if err := command(os.Args[2:]); err != nil {
		log.Fatalf("issuer: %v", err)
	}
}
