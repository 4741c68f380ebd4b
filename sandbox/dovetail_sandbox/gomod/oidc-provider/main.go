// Command oidc-provider is the example server of zitadel/oidc behind TLS, for tests of signing in: the API server and the
// gateway accept only issuers with https, and the example speaks http.
//
// PORT, USERS_FILE and REDIRECT_URI are the example's own variables. TLS_FOLDER has tls.crt and tls.key, and
// ID_TOKEN_SECONDS is how long an ID token is valid. The clients are "web" and "api", both with the secret "secret".
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/zitadel/oidc/v3/example/server/config"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// shortLived is the example's storage with another lifetime of the ID tokens.
type shortLived struct {
	*storage.Storage
	lifetime time.Duration
}

func (s shortLived) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	client, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return shortLivedClient{client, s.lifetime}, nil
}

type shortLivedClient struct {
	op.Client
	lifetime time.Duration
}

func (c shortLivedClient) IDTokenLifetime() time.Duration { return c.lifetime }

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	cfg := config.FromEnvVars(nil)
	users, err := storage.StoreFromFile(cfg.UsersFile)
	if err != nil {
		return err
	}
	seconds, err := strconv.Atoi(os.Getenv("ID_TOKEN_SECONDS"))
	if err != nil {
		return fmt.Errorf("ID_TOKEN_SECONDS: %w", err)
	}
	storage.RegisterClients(
		storage.WebClient("web", "secret", cfg.RedirectURI...),
		storage.WebClient("api", "secret", cfg.RedirectURI...),
	)
	store := shortLived{storage.NewStorage(users), time.Duration(seconds) * time.Second}
	address := net.JoinHostPort("127.0.0.1", cfg.Port)
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	router := exampleop.SetupServer("https://"+address, store, logger, false)
	folder := os.Getenv("TLS_FOLDER")
	server := &http.Server{Addr: address, Handler: router, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServeTLS(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
}
