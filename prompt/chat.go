package prompt

import "strings"

// chat is OpenAI's chat completions, as vLLM, SGLang and llama.cpp take them too.
type chat struct {
	simple
	choices
}

var chatWords = words{
	roles: map[string]byte{
		"system": kindSystem, "developer": kindDeveloper, "user": kindUser, "assistant": kindAssistant,
		"tool": kindResult, "function": kindFunction,
	},
	blocks: map[string]BlockKind{
		"text": BlockText, "refusal": BlockRefusal, "reasoning": BlockThinking,
		"image_url": BlockMedia, "image_embeds": BlockMedia, "video_url": BlockMedia, "video": BlockMedia,
		"audio_url": BlockMedia, "input_audio": BlockMedia, "audio": BlockMedia,
		"audio_embeds": BlockMedia, "file": BlockMedia,
	},
}

func (chat) name() string { return "chat_completions" }

func (chat) serves(path string) bool { return strings.HasSuffix(path, "/chat/completions") }

func (chat) member(p *parse, k []byte) section {
	switch string(k) {
	case "tools":
		p.field = "tools"
		p.tools()
		return secTools
	case "documents":
		p.field = "documents"
		p.array(p.other)
		return secSystem
	case "chat_template":
		return p.template()
	case "functions":
		p.field = "functions"
		p.tools()
		return secFunctions
	case "messages":
		p.field = "messages"
		p.array(p.message)
		return secTurns
	}
	p.Skip()
	return noSection
}
