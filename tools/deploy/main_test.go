package main

import (
	"os"
	"strings"
	"testing"
)

func TestDeploy(t *testing.T) {
	if err := check("../../deploy"); err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, name := range []string{"warmroute", "servicemonitor"} {
		one, err := os.ReadFile("../../deploy/kubernetes/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		b = append(append(b, "\n---\n"...), one...)
	}
	for _, c := range []struct{ from, to, want string }{
		{"minAvailable: 2", "minAvailble: 2", "minAvailble"},
		{"replicas: 3", "replicas: three", "Deployment"},
		{"targetPort: http", "targetPort: web", "port web"},
		{"configMap: {name: warmroute}", "configMap: {name: other}", "ConfigMap other"},
		{"name: config, mountPath", "name: conf, mountPath", "volume conf"},
		{"kind: ServiceMonitor", "kind: PodMonitor", "PodMonitor"},
		{"livenessProbe:", "startupProbe:", "probe"},
	} {
		changed := strings.Replace(string(b), c.from, c.to, 1)
		if changed == string(b) {
			t.Fatalf("%q is not in the file", c.from)
		}
		if err := kubernetes([]byte(changed)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
}
