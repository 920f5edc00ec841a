package file_test

import (
	"strings"
	"testing"

	"github.com/warmroute/router/config/file"
)

// TestShare: each key of [share] that is wrong is named, and secrets are in no message.
func TestShare(t *testing.T) {
	env := func(name string) (string, bool) {
		switch name {
		case "SECRET":
			return "hunter2hunter2hunter2", true
		case "SHORT":
			return "hunter2", true
		}
		return "", false
	}
	const secret = "secret_env = \"SECRET\"\n"
	for _, c := range []struct{ table, says string }{
		{"bus = [\"nats://a:4222\", \"tls://b:4222\"]\n" + secret, ""},
		{"bus = [\"embedded://:6222\"]\npeers = [\"gateways:6222\", \"[::1]:6222\"]\n" + secret, ""},
		{"bus = [\"redis://a:6379\"]\nredis_master = \"m\"\n" + secret, ""},
		{"bus = [\"rediss://a:1\", \"rediss://b:1\"]\nredis_cluster = true\nload = false\n" + secret, ""},
		{"bus = [\"nats://a:4222\"]\n", "secret_env is missing"},
		{"bus = [\"nats://a:4222\"]\nsecret_env = \"SHORT\"\n", "with fewer than 16"},
		{"bus = [\"nats://a:4222\"]\nsecret_env = \"NONE\"\n", "share.secret_env: names"},
		{secret, "share: bus is missing"},
		{"bus = [\"nats://me:hunter2@a:4222\"]\n" + secret, "share.bus[0]: has a user or a password"},
		{"bus = [\"kafka://a:4222\"]\n" + secret, "share.bus[0]: is not a URL that begins with"},
		{"bus = [\"nats://a\"]\n" + secret, "share.bus[0]: is not nats://host:port"},
		{"bus = [\"nats://a:1\", \"redis://b:1\"]\n" + secret, "share.bus[1]: is of another kind"},
		{"bus = [\"embedded://a:1\", \"embedded://b:1\"]\n" + secret, "share.bus: has several addresses"},
		{"bus = [\"redis://a:1\", \"redis://b:1\"]\n" + secret, "neither redis_master nor redis_cluster"},
		{"bus = [\"redis://a:1\"]\nredis_cluster = true\nredis_master = \"m\"\n" + secret, "share.redis_master"},
		{"bus = [\"nats://169.254.169.254:4222\"]\n" + secret, "share.bus[0]: tcp://169.254.169.254:4222 is denied"},
		{"bus = [\"nats://a:1\"]\npeers = [\"b:1\"]\n" + secret, "share.peers: is for a bus of the kind embedded"},
		{"bus = [\"embedded://:1\"]\npeers = [\"b\"]\n" + secret, "share.peers[0]: \"b\" is not host:port"},
		{"bus = [\"redis://a:1\"]\ncredentials_file = \"f\"\n" + secret, "share.credentials_file: is for a bus of"},
		{"bus = [\"redis://a:1\"]\nca_file = \"f\"\n" + secret, "share.ca_file: is for rediss://"},
		{"bus = [\"rediss://a:1\"]\nca_file = \"f\"\n" + secret, ""},
		{"bus = [\"nats://a:1\"]\nredis_cluster = true\n" + secret, "share.redis_cluster: is for a bus of the kind redis"},
		{"bus = [\"nats://a:1\"]\nuser_env = \"NONE\"\n" + secret, "share.user_env: names"},
		{"bus = [\"nats://a:1\"]\nkey_file = \"f\"\n" + secret, "cert_file and key_file go together"},
		{"bus = [\"embedded://a:1\"]\nca_file = \"f\"\n" + secret, "needs cert_file"},
		{"bus = [\"nats://a:1\"]\nsubject = \"a.*\"\n" + secret, "share.subject: \"a.*\" must have"},
		{"bus = [\"nats://a:1\"]\nname = \"" + strings.Repeat("n", 65) + "\"\n" + secret, "share.name: has more than 64"},
		{"bus = [\"nats://a:1\"]\ncache = false\nload = false\n" + secret, "neither cache nor load"},
		{"bus = [\"nats://a:1\"]\ninterval_secs = 1\n" + secret, "share.interval_secs: is 1; it must be 0.0001 to 0.01"},
		{"bus = [\"nats://a:1\"]\nmax_marks = 0\n" + secret, "share.max_marks: is 0; it must be"},
		{"bus = \"nats://a:1\"\n" + secret, "share.bus: is a string; it must be an array"},
	} {
		data := "[share]\n" + c.table + two
		f, err := file.Parse("f", []byte(data), file.Options{LookupEnv: env, Share: true})
		switch {
		case c.says == "" && err == nil:
			again, err := file.Parse("f", []byte(f.Effective()), file.Options{LookupEnv: env, Share: true})
			if err != nil || !file.Same(again.Share, f.Share) {
				t.Errorf("%s: not the same again: %v", c.table, err)
			}
		case c.says == "" || err == nil || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v, want %q", c.table, err, c.says)
		case strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: a secret is in %v", c.table, err)
		}
	}
	f, err := file.Parse("f", []byte("[share]\nbus = [\"nats://a:1\"]\n"+secret+two), file.Options{LookupEnv: env})
	if err != nil || len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0].Message, "nothing is shared") {
		t.Errorf("a host without a bus: %v, %v", f, err)
	}
}
