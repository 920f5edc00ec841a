package layout

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxFile is the largest file that the repository may have, in bytes: recordings
// and pages fit, programs that go build leaves behind do not.
const maxFile = 512 << 10

func TestFilesAreSmall(t *testing.T) {
	if _, err := os.Stat("../../.git"); err != nil {
		t.Skip("not a clone, so git does not know its files")
	}
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(filepath.Join("../..", name)); err == nil && info.Size() > maxFile {
			t.Errorf("%s has %d bytes, want at most %d", name, info.Size(), maxFile)
		}
	}
}
