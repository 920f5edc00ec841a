// Command deploy checks the files of a folder like deploy/: Kubernetes objects by the types of their own APIs,
// strictly, and their references to each other; the compose file by the loader of compose itself.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

func main() {
	failed := false
	for _, dir := range os.Args[1:] {
		if err := check(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(dir string) error {
	manifests, err := filepath.Glob(filepath.Join(dir, "kubernetes", "*.yaml"))
	if err != nil {
		return err
	}
	composed, err := filepath.Glob(filepath.Join(dir, "compose*.yaml"))
	if err != nil {
		return err
	}
	if len(manifests) == 0 || len(composed) == 0 {
		return fmt.Errorf("%s has %d manifests and %d compose files", dir, len(manifests), len(composed))
	}
	var all []error
	var objects bytes.Buffer // of all files, since one may refer to another's
	for _, name := range manifests {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		objects.WriteString("---\n")
		objects.Write(b)
		objects.WriteString("\n")
	}
	if err := kubernetes(objects.Bytes()); err != nil {
		all = append(all, err)
	}
	for _, name := range composed {
		if err := compose(name); err != nil {
			all = append(all, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(all...)
}

func compose(name string) error {
	o, err := cli.NewProjectOptions([]string{name}, cli.WithName("check"))
	if err != nil {
		return err
	}
	p, err := o.LoadProject(context.Background())
	if err != nil {
		return err
	}
	for _, s := range p.Services {
		if s.Build == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
			return fmt.Errorf("service %s: %w", s.Name, err)
		}
	}
	return nil
}

// objects are those of one file.
type objects struct {
	configs     map[string]bool
	deployments []*apps.Deployment
	services    []*core.Service
	budgets     []*policy.PodDisruptionBudget
	monitors    []*monitoring.ServiceMonitor
}

func kubernetes(b []byte) error {
	o := objects{configs: map[string]bool{}}
	for r := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(b))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return o.references()
		}
		if err != nil {
			return err
		}
		if err := o.add(doc); err != nil {
			return err
		}
	}
}

func (o *objects) add(doc []byte) error {
	var t meta.TypeMeta
	if err := strict.Unmarshal(doc, &t); err != nil {
		return err
	}
	if t.Kind == "" && t.APIVersion == "" && onlyComments(doc) {
		return nil // between two files
	}
	decode := func(v any) error {
		if err := strict.UnmarshalStrict(doc, v); err != nil {
			return fmt.Errorf("%s: %w", t.Kind, err)
		}
		return nil
	}
	switch kind := t.APIVersion + " " + t.Kind; kind {
	case "v1 ConfigMap":
		c := new(core.ConfigMap)
		err := decode(c)
		o.configs[c.Name] = true
		return err
	case "apps/v1 Deployment":
		o.deployments = append(o.deployments, new(apps.Deployment))
		return decode(o.deployments[len(o.deployments)-1])
	case "v1 Service":
		o.services = append(o.services, new(core.Service))
		return decode(o.services[len(o.services)-1])
	case "policy/v1 PodDisruptionBudget":
		o.budgets = append(o.budgets, new(policy.PodDisruptionBudget))
		return decode(o.budgets[len(o.budgets)-1])
	case "monitoring.coreos.com/v1 ServiceMonitor":
		o.monitors = append(o.monitors, new(monitoring.ServiceMonitor))
		return decode(o.monitors[len(o.monitors)-1])
	default:
		return fmt.Errorf("nothing is known of %q", kind)
	}
}

// references reports what refers to nothing.
func (o *objects) references() error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	pods := func(s *meta.LabelSelector) bool {
		sel, err := meta.LabelSelectorAsSelector(s)
		if err != nil {
			return false
		}
		for _, d := range o.deployments {
			if sel.Matches(labels.Set(d.Spec.Template.Labels)) {
				return true
			}
		}
		return false
	}
	for _, d := range o.deployments {
		if !pods(d.Spec.Selector) {
			bad("deployment %s: its selector does not fit its pods", d.Name)
		}
		volumes := map[string]bool{}
		for _, v := range d.Spec.Template.Spec.Volumes {
			if volumes[v.Name] = true; v.ConfigMap != nil && !o.configs[v.ConfigMap.Name] {
				bad("deployment %s: there is no ConfigMap %s", d.Name, v.ConfigMap.Name)
			}
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					bad("container %s: there is no volume %s", c.Name, m.Name)
				}
			}
			if c.ReadinessProbe == nil || c.LivenessProbe == nil {
				bad("container %s: a probe is missing", c.Name)
			}
		}
	}
	for _, s := range o.services {
		if !pods(&meta.LabelSelector{MatchLabels: s.Spec.Selector}) {
			bad("service %s selects no pod", s.Name)
		}
		for _, p := range s.Spec.Ports {
			if !o.hasPort(p.TargetPort.StrVal) {
				bad("service %s: no container has the port %s", s.Name, p.TargetPort.StrVal)
			}
		}
	}
	for _, b := range o.budgets {
		if !pods(b.Spec.Selector) {
			bad("budget %s selects no pod", b.Name)
		}
	}
	for _, m := range o.monitors {
		sel, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
		fits := false
		for _, s := range o.services {
			fits = fits || err == nil && sel.Matches(labels.Set(s.Labels))
		}
		if !fits {
			bad("monitor %s selects no service", m.Name)
		}
	}
	if len(o.deployments) == 0 || len(o.services) == 0 || len(o.budgets) == 0 || len(o.monitors) == 0 {
		bad("an object is missing: %d deployments, %d services, %d budgets, %d monitors", len(o.deployments),
			len(o.services), len(o.budgets), len(o.monitors))
	}
	return errors.Join(all...)
}

func (o *objects) hasPort(name string) bool {
	for _, d := range o.deployments {
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, p := range c.Ports {
				if p.Name == name && strings.TrimSpace(name) != "" {
					return true
				}
			}
		}
	}
	return false
}

func onlyComments(doc []byte) bool {
	for l := range bytes.Lines(doc) {
		if l = bytes.TrimSpace(l); len(l) > 0 && l[0] != '#' && !bytes.Equal(l, []byte("---")) {
			return false
		}
	}
	return true
}
