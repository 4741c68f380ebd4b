// Command kubernetes is kube-apiserver, kube-controller-manager and kube-scheduler in one file, as upstream's own commands
// have them. The name by which it is started says which one it is. Processes that run one file share the memory of its
// code, and a build links once instead of three times.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // the time zones of CronJobs

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the log format json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics of clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric kubernetes_build_info
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	}
	fmt.Fprintf(os.Stderr, "%s: the name must be kube-apiserver, kube-controller-manager or kube-scheduler\n", os.Args[0])
	os.Exit(2)
}
