module dovetail.dev/nvidia-cdi-nri

go 1.26.0

require (
	github.com/NVIDIA/nvidia-container-toolkit v1.20.1
	github.com/sirupsen/logrus v1.9.4
)

require (
	github.com/containerd/log v0.1.0 // indirect
	github.com/containerd/nri v0.12.3 // indirect
	github.com/containerd/ttrpc v1.2.7 // indirect
	github.com/knqyf263/go-plugin v0.9.0 // indirect
	github.com/opencontainers/runtime-spec v1.3.0 // indirect
	github.com/tetratelabs/wazero v1.11.0 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/grpc v1.83.1 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
