#!/usr/bin/env bash
# Builds the programs of Kubernetes for `make cluster-kubernetes` from a repository that holds all its sources: about 600
# CPU-seconds once. Where the release's own programs can be downloaded, put those four into the folder instead.
#   build_kubernetes.sh FOLDER [REPOSITORY]
# FOLDER gets kube-apiserver, kube-controller-manager, kube-scheduler and kubelet. REPOSITORY is a clone of MicroShift, bare or
# not (its `vendor/` has Kubernetes with OpenShift's changes, which are asleep without its configuration). Needs Go of the
# version that its go.mod names (1.26 for Kubernetes 1.36); GO names the program.
. "$(dirname "$0")/go_program.sh" https://github.com/openshift/microshift "$@"
mkdir -p "$work/src/cmd/kube"
git -C "$repository" archive --prefix=vendor/ HEAD:vendor | tar -x -C "$work/src"
for name in go.mod go.sum; do git -C "$repository" show "HEAD:$name" > "$work/src/$name"; done
cat > "$work/src/cmd/kube/main.go" <<'GO'
// Command kube is the four programs in one: which one it is, its name says.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	makers := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	maker, known := makers[filepath.Base(os.Args[0])]
	if !known {
		fmt.Fprintln(os.Stderr, "call it kube-apiserver, kube-controller-manager, kube-scheduler or kubelet")
		os.Exit(2)
	}
	os.Exit(cli.Run(maker()))
}
GO
version=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$work/src/go.mod")
minor=${version#v1.}
name=k8s.io/component-base/version
flags=(gitVersion="$version" gitMajor=1 gitMinor="${minor%%.*}" gitTreeState=clean)
build kube ./cmd/kube "${flags[*]/#/-X $name.}"
for program in kube-apiserver kube-controller-manager kube-scheduler kubelet; do
  ln -sf kube "$folder/$program"
done
"$folder/kubelet" --version
