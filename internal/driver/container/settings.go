package container

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// settings are files that replace those of the box's image. The files of users have
// the image's content after an entry for the sandbox's user. The file of name
// servers replaces the host's file, which container engines would mount there.
var settings = map[string]string{
	"/etc/passwd": fmt.Sprintf("%s:x:%d:%[2]d::%s:/bin/sh\n", sandbox.User, sandbox.UserUID, homeDir),
	"/etc/group":  fmt.Sprintf("%s:x:%d:\n", sandbox.User, sandbox.UserUID),
	resolvConf:    "# This sandbox has no network.\n",
	// This file replaces resolvConf in boxes with a network. A query is lost only
	// if the network refused it, so few attempts are enough.
	linkedResolvers: fmt.Sprintf("nameserver %s\nnameserver %s\noptions timeout:5 attempts:2\n", network.Gateway4.Addr(), network.Gateway6.Addr()),
}

const (
	resolvConf      = "/etc/resolv.conf"
	linkedResolvers = "/etc/resolv.linked.conf"
)

// MaxSetting bounds the size of a file that is read from an image.
const MaxSetting = 1 << 20

// SettingsVolume returns the name of the volume with the settings for boxes of an
// image ID.
func SettingsVolume(image string) string {
	id := strings.TrimPrefix(image, "sha256:")
	return SettingsPrefix + id[:min(16, len(id))]
}

// SettingsFiles returns the files of a settings volume. read returns the content of
// a file of the image. It returns nothing if the file is missing, not regular or
// larger than [MaxSetting].
func SettingsFiles(read func(file string) ([]byte, error)) ([]File, error) {
	var files []File
	for file, first := range settings {
		var text []byte
		if file != resolvConf && file != linkedResolvers {
			var err error
			if text, err = read(file); err != nil {
				return nil, err
			}
		}
		if len(text) == 0 && file == "/etc/passwd" {
			first += "root:x:0:0::/root:/bin/sh\n"
		}
		text = append([]byte(first), text...)
		files = append(files, File{Name: path.Base(file), Size: int64(len(text)), Content: bytes.NewReader(text)})
	}
	return files, nil
}

// settingMounts returns the names of the files of a settings volume, by the paths
// that a box has them at.
func settingMounts(linked bool) map[string]string {
	mounts := map[string]string{}
	for file := range settings {
		if file != linkedResolvers {
			mounts[file] = path.Base(file)
		}
	}
	if linked {
		mounts[resolvConf] = path.Base(linkedResolvers)
	}
	return mounts
}

// Resolvers returns the addresses of the DNS servers of a box with a network.
func Resolvers() []string {
	return []string{network.Gateway4.Addr().String(), network.Gateway6.Addr().String()}
}
