package main

import (
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/watch"
	_ "sigs.k8s.io/controller-runtime/pkg/cache"
)

func main() {}
