package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/client/rp"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"golang.org/x/oauth2"
)

// signIn does what a browser and a plugin of kubectl do together: it asks for a code with PKCE, fills in the issuer's
// form, and exchanges the code for a token.
func signIn(arguments []string) error {
	flags := flag.NewFlagSet("sign-in", flag.ExitOnError)
	issuer := flags.String("issuer", "", "the issuer's URL")
	authority := flags.String("authority", "", "who has signed the issuer's certificate, PEM")
	name := flags.String("name", "", "the name to sign in with")
	password := flags.String("password", "", "its password")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	browser, err := trusting(*authority)
	if err != nil {
		return err
	}
	ctx := context.Background()
	scopes := []string{oidc.ScopeOpenID, oidc.ScopeEmail, "groups"}
	party, err := rp.NewRelyingPartyOIDC(ctx, *issuer, client, "", callback, scopes, rp.WithHTTPClient(browser))
	if err != nil {
		return err
	}
	verifier := oauth2.GenerateVerifier()
	challenge := oauth2.S256ChallengeFromVerifier(verifier)
	code, err := authorize(browser, rp.AuthURL("state", party, rp.WithCodeChallenge(challenge)), *name, *password)
	if err != nil {
		return err
	}
	tokens, err := rp.CodeExchange[*oidc.IDTokenClaims](ctx, code, party, rp.WithCodeVerifier(verifier))
	if err != nil {
		return err
	}
	status := map[string]string{
		"token":               tokens.IDToken,
		"expirationTimestamp": tokens.IDTokenClaims.GetExpiration().UTC().Format(time.RFC3339),
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
	})
}

// trusting is a client that stops where the issuer sends the browser back.
func trusting(authority string) (*http.Client, error) {
	text, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", authority)
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		CheckRedirect: func(request *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(request.URL.String(), callback) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}, nil
}

// authorize signs somebody in and returns the code.
func authorize(browser *http.Client, target, name, password string) (string, error) {
	page, err := browser.Get(target)
	if err != nil {
		return "", err
	}
	page.Body.Close()
	form := url.Values{"id": {page.Request.URL.Query().Get("authRequestID")}, "username": {name}, "password": {password}}
	action := *page.Request.URL
	action.RawQuery = ""
	answer, err := browser.PostForm(action.String(), form)
	if err != nil {
		return "", err
	}
	answer.Body.Close()
	back, err := answer.Location()
	if err != nil {
		return "", fmt.Errorf("the issuer lets %q not sign in: %s", name, answer.Status)
	}
	code := back.Query().Get("code")
	if code == "" {
		return "", errors.New("the issuer gave no code: " + back.RawQuery)
	}
	return code, nil
}
