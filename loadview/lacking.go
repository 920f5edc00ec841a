package loadview

// lacked makes the prompt of f a suspect without blame: f's member said that it lacks what the request needs. Where
// another member serves the prompt, as served has it, that counts as a failure of f's member; otherwise nobody is
// blamed: no member has it.
func (p *pool) lacked(f *flight, key uint64) {
	now := p.now()
	x := p.suspects.find(key, now)
	if x == nil {
		x = p.suspects.add(key, now)
		p.suspected.Store(true)
	}
	for _, b := range x.blamed {
		if b.member == f.member {
			return
		}
	}
	if len(x.blamed) < maxBlamed {
		x.blamed = append(x.blamed, blame{member: f.member, epoch: f.member.epoch})
	}
}
