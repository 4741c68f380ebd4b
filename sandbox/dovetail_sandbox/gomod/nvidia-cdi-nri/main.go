// The plugin of NVIDIA's container toolkit for the Node Resource Interface, without the toolkit's installer, which needs
// the driver's library. It gives containers the CDI devices that the annotations of their pod name.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk-installer/container/runtime/nri"
	"github.com/sirupsen/logrus"
)

func main() {
	socket := flag.String("nri-socket", "/var/run/nri/nri.sock", "socket of the container runtime")
	namespace := flag.String("nri-namespace", "gpu-operator", "namespace whose pods may have management devices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logger := logrus.New()
	logger.SetLevel(logrus.DebugLevel)
	plugin := nri.NewPlugin(ctx, logger, []string{*namespace})
	if err := plugin.Start(ctx, *socket, "10"); err != nil {
		log.Fatal(err)
	}
	defer plugin.Stop()
	logger.Info("registered")
	<-ctx.Done()
}
